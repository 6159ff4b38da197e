"""The example in each function's docstring, evaluated with the numpy references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.ops.emitters import Evaluator, array_of
from tilewright.base.builtin import Builtin, pop_emitter, push_emitter
from tilewright.ops.values import tensor, unwrap


class OneProgram:
    """The surroundings of a grid of one program."""

    def program_id(self, axis: int) -> int:
        return 0

    def num_programs(self, axis: int) -> int:
        return 1


def examples(function: Builtin) -> list[tuple[str, str]]:
    """(expression, printed result) pairs of a docstring."""
    lines = [line.strip() for line in (function.fn.__doc__ or "").splitlines()]
    starts = [i for i, line in enumerate(lines) if line.startswith(">>>")]
    out = []
    for start in starts:
        want = []
        for line in lines[start + 1 :]:
            if not line or line.startswith(">>>"):
                break
            want.append(line)
        out.append((lines[start].removeprefix(">>>").strip(), "\n".join(want)))
    return out


FUNCTIONS = {name: getattr(tl, name) for name in dir(tl) if isinstance(getattr(tl, name), Builtin)}
CASES = [(name, *case) for name, function in FUNCTIONS.items() for case in examples(function)]


def shown(result: Any) -> str:
    if isinstance(result, tensor):
        return str(np.asarray(array_of(result)))
    if isinstance(result, tuple):
        return "\n".join(shown(part) for part in result)
    return "" if result is None else str(unwrap(result))


@pytest.mark.parametrize(("name", "expression", "want"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_example(name: str, expression: str, want: str) -> None:
    emitter = Evaluator()
    emitter.machine = OneProgram()
    push_emitter(emitter)
    try:
        result = eval(expression, {"tl": tl})
    finally:
        pop_emitter()
    assert shown(result) == want


def test_the_families_of_this_room_have_examples() -> None:
    missing = [
        name
        for name, function in FUNCTIONS.items()
        if function.fn.__module__.rpartition(".")[2] in ("operators", "math", "casts", "creation")
        and not examples(function)
    ]
    assert not missing
