"""`assert_kernel`: a kernel against a reference on many drawn calls; the smallest that fails is shown as a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from tilewright.base.grids import Grid
from tilewright.comparing.compare import ComparisonError, compare
from tilewright.comparing.sides import Asked
from tilewright.comparing.strategies import Example, examples

_PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


def check(
    kernel: Any,
    reference: Callable[..., Any] | None,
    strategies: Mapping[str, Any],
    *,
    grid: Grid,
    dims: Mapping[str, SearchStrategy[int]] | None,
    calls: int,
    torch: bool,
    sides: Sequence[str] | None,
    outputs: Sequence[str] | None,
    rtol: float | None,
    atol: float | None,
) -> None:
    """See `assert_kernel` of `tilewright.testing`."""

    def holds(example: Example) -> None:
        over = grid(example.arguments) if callable(grid) else grid
        try:
            compare(
                kernel, reference, grid=over, sides=sides, outputs=outputs, rtol=rtol, atol=atol, **example.arguments
            )
        except ComparisonError as error:
            text = _program(Asked(kernel, (), {}).name, reference, example, over)
            raise ComparisonError(error.comparison, f"\n\nThe smallest call that was found:\n\n{text}") from None

    every = list(HealthCheck)  # a compiler takes its time, whatever is drawn
    wanted = settings(
        max_examples=calls, deadline=None, database=None, phases=_PHASES, report_multiple_bugs=False,
        suppress_health_check=every,
    )  # fmt: skip
    wanted(given(examples(strategies, dims, torch=torch))(holds))()


def _program(kernel: str, reference: Any, example: Example, grid: Grid) -> str:
    """The call as a program to paste."""
    lines = ["from tilewright.testing import array, compare", ""]
    lines += example.lines.values()
    words = [f"{name}={example.texts[name]}" for name in example.arguments]
    words += [] if grid is None else [f"grid={grid!r}"]
    called = (
        "None" if reference is None else getattr(reference, "__name__", "reference").replace("<lambda>", "reference")
    )
    return "\n".join([*lines, f"compare({kernel}, {called},", *(f"    {word}," for word in words), ")"])
