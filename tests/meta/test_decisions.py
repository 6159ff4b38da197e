"""Holds that planners answer with data: with a reason for every no, kept by the compilation, told in the docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.meta.sources import ROOT, FunctionNode, Source, sources
from tilewright.backends.cpu.plan import subjects as cpu
from tilewright.backends.nvidia.plan import subjects as nvidia

# Planners by file, and of each the subject whose answers it makes. A planner that may say no stands here.
PLANNERS = {
    "passes/carried_offsets.py": {"_recognise": "CARRIED"},
    "cpu/plan/wrapped.py": {"_unread": "WRAPPED"},
    "passes/either_way.py": {"_recognise": "EITHER_WAY"},
    "cpu/plan/apart.py": {"_recognise": "APART"},
    "cpu/plan/short_loops.py": {"_short": "WRITTEN_OUT"},
    "cpu/plan/blocked_trips.py": {"_in_blocks": "BLOCKED"},
    "cpu/plan/whole_rows.py": {"_in_rows": "BLOCKED"},
    "cpu/plan/reduced_in_trips.py": {"_pays": "IN_TRIPS"},
    "cpu/plan/dims_at_once.py": {"_side_by_side": "AT_ONCE"},
    "cpu/plan/straight.py": {"_where": "STRAIGHT"},
    "passes/nested.py": {"_nested": "NESTED"},
    "passes/handed_on.py": {"_recognise": "HANDED_ON"},
    "passes/rolled.py": {"_as_loop": "ROLLED", "_as_one_loop": "ROLLED"},
    "cpu/plan/summed_rows.py": {"_in_memory": "SUMMED"},
    "cpu/plan/computed_rows.py": {"_computed": "COMPUTED_ROWS"},
    "cpu/plan/outer_products.py": {"_factors": "SUMMED"},
    "cpu/plan/turned.py": {"_turned": "TURNED"},
    "cpu/plan/short_axes.py": {"_slices": "SLICED"},
    "cpu/plan/beside.py": {"_recognise": "BESIDE"},
    "cpu/plan/reciprocal.py": {"_repeated": "RECIPROCAL"},
    "analysis/matrices.py": {"memory_operand": "IN_PLACE"},
    "cpu/plan/coalesce.py": {"plan_coalescing": "JOINED"},
    "cpu/plan/pack_cache.py": {"plan_cache": "KEPT"},
    "cpu/plan/unseen.py": {"_unseen": "UNSEEN"},
    "cpu/plan/dot_step.py": {"accumulates": "ACCUMULATOR", "b_in_place": "UNPACKED"},
    "cpu/plan/planner.py": {"_can_join": "FUSION"},
    "cpu/plan/reuse.py": {"_worth": "KEPT_TILE"},
    "cpu/plan/ahead.py": {"_row": "AHEAD"},
    "cpu/plan/lanes.py": {"vectorised": "VECTORS"},
    "cpu/plan/combining.py": {"plan_combining": "COMBINED"},
    "cpu/emit/masks.py": {"_known_below": "UNMASKED"},
    "cpu/plan/past.py": {"plan_past": "PAST_END"},
    "cpu/emit/nontemporal.py": {"plan_streaming": "PAST_CACHES"},
    "nvidia/plan/dots.py": {"_wgmma": "WGMMA", "_mma": "TENSOR_CORES"},
    "nvidia/plan/descriptors.py": {"_served": "COPY_ENGINE"},
    "nvidia/plan/tma.py": {"plan_blocks": "COPY_ENGINE", "plan_copy": "COPY_ENGINE"},
    "nvidia/plan/prefetch.py": {"plan_prefetches": "RING", "_prefetch": "RING"},
    "nvidia/plan/pipeliner.py": {"_ring_stages": "RING", "_with_room": "RING", "_may_fly": "ASYNC_PRODUCT"},
    "nvidia/plan/conversions.py": {"conversion": "IN_WARP"},
    "nvidia/plan/reduced_behind.py": {"_carried": "REDUCED_BEHIND"},
    "nvidia/plan/barriers.py": {"_waits": "NO_BARRIER"},
    "nvidia/plan/ordering.py": {"_waits": "UNORDERED"},
    "nvidia/pipeline.py": {"_shared_out": "CLUSTER"},
}
ALWAYS = {"PRODUCT"}  # noted where it is planned: there is no No
ALIASES = {"Loads"}  # types that hold answers


def _functions(source: Source) -> dict[str, FunctionNode]:
    return {node.name: node for node in ast.walk(source.tree) if isinstance(node, FunctionNode)}


def _rooms() -> Iterator[tuple[str, Source]]:
    for room in ("analysis", "passes", "backends"):
        for source in sources(f"tilewright/{room}"):
            yield source.name.removeprefix("tilewright/").removeprefix("backends/"), source


def silent(function: FunctionNode) -> list[str]:
    """How a planner could say no without a reason."""
    said = ast.unparse(function.returns) if function.returns is not None else "nothing"
    found = []
    if not re.search(rf"\b(Answer|Yes|No|{'|'.join(ALIASES)})\b", said) or said.endswith("| None"):
        found.append(f"{function.name} is declared to return {said}")
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and _says_nothing(node.value) and "Iterable" not in said:
            found.append(f"{function.name} returns nothing in line {node.lineno}")
    return found


def _says_nothing(value: ast.expr | None) -> bool:
    empty = isinstance(value, ast.List | ast.Tuple) and not value.elts
    return value is None or empty or (isinstance(value, ast.Constant) and value.value in (None, False))


@pytest.mark.parametrize("name", PLANNERS)
def test_planners_answer_with_a_reason(name):
    functions = _functions(dict(_rooms())[name])
    problems = [problem for planner in PLANNERS[name] for problem in silent(functions[planner])]
    assert not problems, "\n".join(problems)


def test_a_new_planner_is_listed():
    """Whatever answers is listed, and what is called a plan says no only with a reason."""
    for name, source in _rooms():
        for function in _functions(source).values():
            said = ast.unparse(function.returns) if function.returns is not None else ""
            if function.name.startswith("plan_") and "/plan/" in name and function.name != "plan_of":
                assert "None" not in said, f"{name}: {function.name} may say no without a reason"
                if "Answer[" in said:
                    assert function.name in PLANNERS.get(name, {}), f"{name}: {function.name} is not listed here"


def _noted() -> set[str]:
    """Subjects given to `note`, in the passes and the back ends."""
    found = set()
    for _, source in _rooms():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "note":
                found.update(arg.id for arg in node.args[:1] if isinstance(arg, ast.Name) and arg.id.isupper())
    return found


def test_every_subject_has_a_planner_and_its_answers_are_kept():
    names = {name for module in (cpu, nvidia) for name in vars(module) if name.isupper() and name != "SUBJECTS"}
    assert names == _noted()
    assert names == {subject for planners in PLANNERS.values() for subject in planners.values()} | ALWAYS
    for module in (cpu, nvidia):
        assert {subject.name for subject in module.SUBJECTS} == {
            value.name for name, value in vars(module).items() if name.isupper() and name != "SUBJECTS"
        }


def test_the_page_tells_of_every_subject():
    page = (ROOT / "docs/explain.md").read_text(encoding="utf-8")
    for subject in (*cpu.SUBJECTS, *nvidia.SUBJECTS):
        assert f"| {subject.name} | {subject.meaning} |" in page


@pytest.mark.parametrize(
    "text",
    [
        "def plan(loop) -> Answer[Plan]:\n    return None",
        "def plan(loop) -> Answer[Plan]:\n    return []",
        "def plan(loop) -> Plan | None:\n    return find(loop)",
        "def plan(loop) -> list[Plan]:\n    return []",
    ],
)
def test_silence_is_seen(text):
    assert silent(ast.parse(text).body[0])


def test_an_answer_is_no_silence():
    text = (
        "def plan(loop) -> Answer[Plan]:\n    if bad(loop):\n        return No('why', loop)\n    return Yes(Plan(loop))"
    )
    assert not silent(ast.parse(text).body[0])
