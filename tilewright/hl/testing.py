"""What programs of examples and tests call around kernels: results beside a reference, code, times.

The names and parameters are those of Helion's `_testing`.
"""

from __future__ import annotations

import functools
import importlib.util
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from tilewright import testing
from tilewright.hl.config import Config
from tilewright.hl.runtime.bound import BoundKernel
from tilewright.hl.runtime.kernel import Kernel

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HALF_DTYPE = torch.float16
LONG_INT_TYPE = torch.int64
PROJECT_ROOT = Path.cwd()
EXAMPLES_DIR = PROJECT_ROOT / "examples"
_MILLISECONDS = 200.0  # that each function is timed for


class CosSimilarity(NamedTuple):
    """How like two tensors have to be: the dimension along which they are compared, and the least cosine."""

    dim: int
    min_similarity: float


# --- running -------------------------------------------------------------------------------------------


def code_and_output(fn: Kernel, args: Sequence[Any], **choices: Any) -> tuple[str, Any]:
    """The generated code of a kernel, and what it returns.

    Args:
        fn: the kernel.
        args: its arguments.
        choices: of the configuration; none for the first of the kernel's own, else the default.
    """
    bound = fn.bind(args)
    config = _chosen(bound, choices)
    return bound.to_code(config), bound.compile_config(config)(*fn.normalize_args(*args))


def output_only(fn: Kernel, args: Sequence[Any], **choices: Any) -> Any:
    """What a kernel returns; arguments as of `code_and_output`."""
    bound = fn.bind(args)
    return bound.compile_config(_chosen(bound, choices))(*fn.normalize_args(*args))


def _chosen(bound: BoundKernel, choices: Mapping[str, Any]) -> Config:
    return Config(**choices) if choices else bound.default_config()


def run_example(
    kernel_fn: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    baseline_fn: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    args: Sequence[Any],
    kernel_name: str = "helion",
    baseline_name: str = "torch",
    rtol: float = 1e-2,
    atol: float = 1e-1,
    max_mismatch_pct: float | None = None,
    max_mismatched_abs_diff: float | None = None,
    bwd: bool = False,
    bwd_relative_l2: float | None = None,
    trace_path: str | None = None,
    process_group_name: str | None = None,
    interleaved: bool = True,
) -> dict[str, float]:
    """Compare functions with a reference, time them in turns, print a table.

    Args:
        kernel_fn: the function, or several by name.
        baseline_fn: the reference, or several, of which the first is the one to agree with.
        args: arguments of all.
        kernel_name, baseline_name: names of single functions.
        rtol, atol: tolerances.
        max_mismatch_pct, max_mismatched_abs_diff: see `assert_close_with_mismatch_tolerance`.
        bwd: compare gradients of the arguments that have them, too.
        bwd_relative_l2: compare those by `assert_relative_l2_close`.
        trace_path, process_group_name, interleaved: accepted, and without effect.

    Returns:
        Milliseconds a call, by name.

    Raises:
        AssertionError: results differ.
    """
    kernels = dict(kernel_fn) if isinstance(kernel_fn, Mapping) else {kernel_name: kernel_fn}
    baselines = dict(baseline_fn) if isinstance(baseline_fn, Mapping) else {baseline_name: baseline_fn}
    close = _comparison(atol, rtol, max_mismatch_pct, max_mismatched_abs_diff)
    (first, reference), *_ = baselines.items()
    expected, gradients = _computed(reference, args, bwd)
    for name, function in {**kernels, **baselines}.items():
        found, own = _computed(function, args, bwd)
        _each(close, found, expected, name)
        for mine, theirs in zip(own, gradients, strict=True):
            if bwd_relative_l2 is not None:
                assert_relative_l2_close(mine, theirs, bwd_relative_l2, msg=f"gradients of {name}")
            else:
                close(mine, theirs)
    times = _times({**kernels, **baselines}, args)
    for name, milliseconds in times.items():
        print(f"{name:24} {milliseconds:10.4f} ms {times[first] / milliseconds:8.2f}x", file=sys.stderr)
    return times


def check_example(
    name: str,
    args: Sequence[Any],
    expected: Any,
    fn_name: str | None = None,
    skip_accuracy: bool = False,
    static_shapes: bool | None = None,
    atol: float = 1e-1,
    rtol: float = 1e-2,
    max_mismatch_pct: float | None = None,
    max_mismatched_abs_diff: float | None = None,
    emit_code: bool = True,
    cos_sim: CosSimilarity | tuple[int, float] | None = None,
    **choices: Any,
) -> str:
    """Run a kernel of the file `examples/NAME.py`, compare what it returns, and give its code.

    Args:
        name: the file, in the folder `examples` of the working directory.
        args: arguments.
        expected: what the kernel has to return.
        fn_name: the kernel in the file; None for the one of the file's name.
        skip_accuracy: compare nothing.
        static_shapes: the setting; None for the kernel's own.
        atol, rtol, max_mismatch_pct, max_mismatched_abs_diff: as of `run_example`.
        emit_code: give the code; "" if not.
        cos_sim: compare by the cosine of rows instead.
        choices: of the configuration.
    """
    kernel = getattr(import_path(EXAMPLES_DIR / f"{name}.py"), fn_name or name)
    if static_shapes is not None:
        kernel.settings.static_shapes = static_shapes
        kernel.reset()
    code, found = code_and_output(kernel, args, **choices) if emit_code else ("", output_only(kernel, args, **choices))
    if cos_sim is not None:
        dim, least = cos_sim
        assert torch.nn.functional.cosine_similarity(found.float(), expected.float(), dim=dim).min().item() >= least
    elif not skip_accuracy:
        _each(_comparison(atol, rtol, max_mismatch_pct, max_mismatched_abs_diff), found, expected, name)
    return code


def import_path(filename: str | Path) -> ModuleType:
    """The module of a file, imported once."""
    path = Path(filename)
    name = f"{__name__}.{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no file of Python")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


# --- comparing -----------------------------------------------------------------------------------------


def assert_close_with_mismatch_tolerance(
    actual: Any,
    expected: Any,
    *,
    atol: float = 1e-4,
    rtol: float = 1e-4,
    max_mismatch_pct: float = 0.01,
    max_mismatched_abs_diff: float | None = None,
    max_abs_diff: float | None = None,
    max_rel_diff: float | None = None,
) -> None:
    """Raise `AssertionError` unless two tensors agree but for a few elements.

    Args:
        actual, expected: the tensors; other values have to agree whole.
        atol, rtol: an element agrees within `atol + rtol * |expected|`.
        max_mismatch_pct: part of the elements that may disagree (0.01 is one in a hundred).
        max_mismatched_abs_diff: largest difference of those.
        max_abs_diff, max_rel_diff: largest differences of all.
    """
    if not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, atol=atol, rtol=rtol)
        return
    wide = torch.promote_types(torch.promote_types(actual.dtype, expected.dtype), torch.float32)
    found, wanted = actual.to(wide), expected.to(wide)
    differs = ~torch.isclose(found, wanted, atol=atol, rtol=rtol, equal_nan=True)
    distance = torch.where(differs, (found - wanted).abs(), 0.0)
    part = differs.float().mean().item() if differs.numel() else 0.0
    limits = (
        ("of the elements differ", part, max_mismatch_pct),
        ("is the largest difference of those that differ", _most(distance), max_mismatched_abs_diff),
        ("is the largest difference", _most((found - wanted).abs()), max_abs_diff),
        ("is the largest relative difference", _most((found - wanted).abs() / wanted.abs()), max_rel_diff),
    )
    for what, value, limit in limits:
        if limit is not None and not value <= limit:
            raise AssertionError(f"{value:g} {what}; {limit:g} are allowed")


def assert_relative_l2_close(
    actual: torch.Tensor, expected: torch.Tensor, max_relative_l2: float, *, msg: str = ""
) -> None:
    """Raise `AssertionError` unless the norm of the difference is at most a part of the norm of what is expected."""
    found = ((actual.double() - expected.double()).norm() / expected.double().norm()).item()
    if not found <= max_relative_l2:
        raise AssertionError(
            f"{msg and msg + ': '}the relative difference is {found:g}; {max_relative_l2:g} is allowed"
        )


def _most(values: torch.Tensor) -> float:
    return values.nan_to_num(0.0).max().item() if values.numel() else 0.0


def _comparison(atol: float, rtol: float, part: float | None, largest: float | None) -> Callable[[Any, Any], None]:
    """How two results are compared."""

    def compare(found: Any, expected: Any) -> None:
        if part is None:
            torch.testing.assert_close(found, expected, atol=atol, rtol=rtol, check_dtype=False)
        else:
            assert_close_with_mismatch_tolerance(
                found, expected, atol=atol, rtol=rtol, max_mismatch_pct=part, max_mismatched_abs_diff=largest
            )

    return compare


def _each(close: Callable[[Any, Any], None], found: Any, expected: Any, name: str) -> None:
    """Compare results tensor by tensor; what the reference has None for is not compared."""
    ours, theirs = _tensors(found), _tensors(expected)
    if len(ours) != len(theirs):
        raise AssertionError(f"{name} returns {len(ours)} tensors, and the reference {len(theirs)}")
    for mine, wanted in zip(ours, theirs, strict=True):
        if wanted is not None:
            close(mine, wanted.to(mine.device) if isinstance(wanted, torch.Tensor) else wanted)


def _tensors(result: Any) -> list[Any]:
    return list(result) if isinstance(result, list | tuple) else [result]


def _computed(function: Callable[..., Any], args: Sequence[Any], backward: bool) -> tuple[Any, list[torch.Tensor]]:
    """What a function returns, and the gradients of its arguments for a gradient of ones (if they are wanted)."""
    if not backward:
        return function(*args), []
    wanted = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.requires_grad]
    result = function(*args)
    outputs = [out for out in _tensors(result) if isinstance(out, torch.Tensor) and out.requires_grad]
    found = torch.autograd.grad(outputs, wanted, [torch.ones_like(out) for out in outputs], allow_unused=True)
    return result, [torch.zeros_like(arg) if given is None else given for arg, given in zip(wanted, found, strict=True)]


def _times(functions: Mapping[str, Callable[..., Any]], args: Sequence[Any]) -> dict[str, float]:
    """Milliseconds a call, of calls in turns."""
    candidates = {name: testing.Candidate(functools.partial(run, *args)) for name, run in functions.items()}
    samples, failed = testing.time_in_turns(candidates, _MILLISECONDS / 4, _MILLISECONDS, drop=False)
    for error in failed.values():
        raise error
    return {name: statistics.median(found) for name, found in samples.items()}
