"""Holds that planners answer with data: with a reason for every no, kept by the compilation, told in the docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.meta.sources import ROOT, FunctionNode, Source, sources
from tilewright.backends.cpu.plan import subjects as cpu
from tilewright.backends.nvidia.plan import subjects as nvidia
from tilewright.ir import subjects as general

# Planners by file, and of each the subject whose answers it makes. A planner that may say no stands here.
PLANNERS = {
    "passes/carried_offsets.py": {"_recognise": "CARRIED"},
    "cpu/plan/wrapped_indices.py": {"_unread": "WRAPPED"},
    "passes/if_conversion.py": {"_recognise": "IF_CONVERTED"},
    "cpu/plan/loop_distribution.py": {"_apart": "DISTRIBUTED"},
    "cpu/plan/unroll_loops.py": {"_short": "UNROLLED"},
    "cpu/plan/single_trips.py": {"_version": "SINGLE_TRIPS"},
    "cpu/plan/strips.py": {"plan_strips": "STRIPS"},
    "cpu/plan/direct_epilogue_store.py": {"_where": "DIRECT_STORE"},
    "passes/delinearize.py": {"_nested": "DELINEARIZED"},
    "loops/sink_prefetched_loads.py": {"_recognise": "SUNK_LOADS", "_matrix": "SUNK_LOADS"},
    "loops/dot_loops.py": {"_normal": "DOT_LOOPS", "_of_term": "DOT_LOOPS", "_operands": "DOT_LOOPS"},
    "loops/reduction_loops.py": dict.fromkeys(
        ("_normal", "_one", "_of_term", "_row_by_row", "_width"), "REDUCTION_LOOPS"
    ),
    "loops/operands.py": {**dict.fromkeys(("of", "_take", "_line"), "DOT_LOOPS"), "product": "REDUCTION_LOOPS"},
    "analysis/recurrences.py": {"how_it_runs": "LOOP", "contraction": "CONTRACTION"},
    "cpu/emit/answers.py": {"_reach": "ACCESS", "_combined": "REDUCTION"},
    "nvidia/emit/answers.py": {"_reach": "ACCESS"},
    "nvidia/emit/reduce.py": {"_told": "REDUCTION"},
    "cpu/plan/row_dots_to_sums.py": {"_computed": "DOT_AS_SUM"},
    "cpu/plan/narrow_dots.py": {"_narrow": "NARROWED"},
    "cpu/plan/swap_operands.py": {"_swapped": "SWAPPED"},
    "cpu/plan/reduction_order.py": {"_order": "REDUCTION_ORDER"},
    "cpu/plan/unroll_reductions.py": {"_slices": "UNROLLED_REDUCTION"},
    "cpu/plan/interleaved_stores.py": {"_recognise": "INTERLEAVED"},
    "cpu/plan/reciprocal.py": {"_repeated": "RECIPROCAL"},
    "analysis/matrices.py": {"memory_operand": "IN_PLACE"},
    "cpu/plan/k_strip_mining.py": {"plan_k_strips": "K_STRIPS"},
    "cpu/plan/pack_cache.py": {"plan_cache": "KEPT"},
    "cpu/plan/dead_rows.py": {"_dead": "DEAD_ROWS"},
    "cpu/plan/dot_step.py": {"accumulates": "ACCUMULATOR", "b_in_place": "UNPACKED"},
    "cpu/plan/planner.py": {"_can_join": "FUSION"},
    "cpu/plan/fuse_rows.py": {"_joins": "ROWS_FUSED"},
    "cpu/plan/reuse.py": {"_worth": "MATERIALIZED"},
    "cpu/plan/prefetch_rows.py": {"_row": "PREFETCHED"},
    "cpu/plan/lanes.py": {"vectorised": "VECTORS"},
    "cpu/plan/combining.py": {"plan_combining": "COMBINED"},
    "cpu/emit/masks.py": {"_known_below": "UNMASKED"},
    "cpu/plan/tail_chunks.py": {"plan_tail": "TAIL"},
    "cpu/emit/nontemporal.py": {"plan_streaming": "NONTEMPORAL"},
    "nvidia/plan/dots.py": {"_wgmma": "WGMMA", "_mma": "TENSOR_CORES"},
    "nvidia/plan/turned_chains.py": {"_worth": "TURNED"},
    "nvidia/plan/descriptors.py": {"_served": "COPY_ENGINE"},
    "nvidia/plan/tma.py": {"plan_blocks": "COPY_ENGINE", "plan_copy": "COPY_ENGINE"},
    "nvidia/plan/prefetch.py": {"plan_prefetches": "RING", "_prefetch": "RING"},
    "nvidia/plan/pipeliner.py": {"_ring_stages": "RING", "_with_room": "RING", "_may_stay_in_flight": "ASYNC_DOT"},
    "nvidia/plan/roles.py": {"_levels": "ROLES", "_with_room": "ROLES"},
    "nvidia/plan/overlap.py": {"plan_overlap": "ASYNC_DOT"},
    "nvidia/plan/rotation.py": {"plan_rotation": "ROTATED"},
    "nvidia/plan/persistence.py": {"plan_persistence": "PERSISTENT"},
    "nvidia/plan/program_order.py": {"_turned": "PROGRAM_ORDER"},
    "nvidia/plan/conversions.py": {"conversion": "IN_WARP"},
    "nvidia/plan/reductions_out_of_loops.py": {"_carried": "REDUCED_AFTER"},
    "nvidia/plan/slices.py": {"_sliced": "OWN_SLICES", "_answer": "OWN_SLICES"},
    "nvidia/plan/large_tiles.py": {"_passes": "STRIPS", "_worth": "STRIPS"},
    "nvidia/plan/barriers.py": {"_waits": "NO_BARRIER"},
    "nvidia/plan/ordering.py": {"_waits": "UNORDERED"},
    "nvidia/pipeline.py": {"_shared_out": "CLUSTER"},
    "nvidia/plan/cluster.py": {"_shared_out": "LONG_ROWS"},
}
ALWAYS = {"DOT", "APART_AT_LAUNCH", "DOUBLE_BUFFERED", "WHOLE"}  # noted where it is planned, or by the assembler
_LISTS = {"SUBJECTS", "GENERAL"}
ALIASES = {"Loads"}  # types that hold answers


def _functions(source: Source) -> dict[str, FunctionNode]:
    return {node.name: node for node in ast.walk(source.tree) if isinstance(node, FunctionNode)}


def _rooms() -> Iterator[tuple[str, Source]]:
    for room in ("analysis", "passes", "loops", "backends"):
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
    """Subjects given to `note` or `once`, in the passes, the nest and the back ends."""
    found = set()
    for _, source in _rooms():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
                "note",
                "once",
            ):
                found.update(arg.id for arg in node.args[:1] if isinstance(arg, ast.Name) and arg.id.isupper())
    return found


def test_every_subject_has_a_planner_and_its_answers_are_kept():
    names = {
        name for module in (cpu, nvidia, general) for name in vars(module) if name.isupper() and name not in _LISTS
    }
    assert names == _noted()
    assert names == {subject for planners in PLANNERS.values() for subject in planners.values()} | ALWAYS
    for module in (cpu, nvidia):
        own = {value.name for name, value in vars(module).items() if name.isupper() and name not in _LISTS}
        assert {subject.name for subject in module.SUBJECTS} == own | {subject.name for subject in general.GENERAL}


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
