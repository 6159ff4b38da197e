"""``python -m benchmarks.sustained``: products and attention through descriptors, with clock and power beside.

A GPU at its power limit lowers its clock: what a kernel reaches in a few calls says little about what it reaches in a
loop. So each figure is given three times: the median of single calls in turns, the rate over seconds of calls, and that
by the clock that `nvidia-smi` told meanwhile. Rivals are cuBLAS (torch), Triton, and our own kernel without roles.
"""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.gpu import flavour, turns
from tilewright.backends.nvidia import tuning

Function = Callable[[], Any]
_KERNELS = Path(__file__).resolve().parent
_BATCH_SECONDS = 0.05  # of calls between two looks at the time


@dataclass
class Sensors:
    """What the GPU told of itself: medians over the second half of the time."""

    clocks: list[float] = field(default_factory=list)  # MHz of the multiprocessors
    powers: list[float] = field(default_factory=list)  # W

    @property
    def clock(self) -> float:
        return _settled(self.clocks)

    @property
    def power(self) -> float:
        return _settled(self.powers)


def _settled(found: list[float]) -> float:
    return statistics.median(found[len(found) // 2 :]) if found else float("nan")


@contextmanager
def watched() -> Iterator[Sensors]:
    """Read clock and power all 100 ms meanwhile."""
    command = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits", "-lms", "100"]
    sensors = Sensors()
    with subprocess.Popen([*command, "-i", "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield sensors
        finally:
            process.terminate()
            text, _ = process.communicate()
        for line in text.splitlines():
            values = line.split(",")
            if len(values) == 2 and all(value.strip().replace(".", "").isdigit() for value in values):
                sensors.clocks.append(float(values[0]))
                sensors.powers.append(float(values[1]))


@dataclass
class Figure:
    """Rates of one kernel in TFLOP/s.

    Args:
        name: of the kernel.
        short: single calls.
        long: over seconds.
        clock: MHz meanwhile.
        power: W meanwhile.
        error: against float64, root of mean squares over that of the result.
        failure: what went wrong.
    """

    name: str
    short: float = float("nan")
    long: float = float("nan")
    clock: float = float("nan")
    power: float = float("nan")
    error: float = float("nan")
    failure: str = ""

    @property
    def per_ghz(self) -> float:
        return self.long / self.clock * 1e3


def sustain(function: Function, seconds: float) -> tuple[float, Sensors]:
    """Seconds of a call when it is called for so long, and what the GPU told meanwhile."""
    begin = time.perf_counter()
    for _ in range(5):
        function()
    torch.cuda.synchronize()
    batch = max(1, int(_BATCH_SECONDS / ((time.perf_counter() - begin) / 5)))
    calls = 0
    with watched() as sensors:
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for _ in range(batch):
                function()
            torch.cuda.synchronize()
            calls += batch
        passed = time.perf_counter() - begin
    return passed / calls, sensors


# --- kernels ------------------------------------------------------------------------------------------------

Config = tuple[int, int, int, int, int]  # rows, columns, depth (of attention the width), warps, stages
Call = Callable[[Config], Function]


def _descriptor(ours: bool) -> Any:
    if ours:
        from tilewright.tools.tensor_descriptor import TensorDescriptor
    else:
        from triton.tools.tensor_descriptor import TensorDescriptor
    return TensorDescriptor.from_tensor


@contextmanager
def without_roles() -> Iterator[None]:
    """Kernels that are compiled meanwhile have no roles unless they ask for them."""
    before, tuning.ROLE_WARPS = tuning.ROLE_WARPS, 0
    try:
        yield
    finally:
        tuning.ROLE_WARPS = before


@dataclass(frozen=True)
class Side:
    """One of those who race.

    Args:
        name: for the table.
        ours: whether the kernel is ours; else Triton's.
        kernel: of `descriptor_kernels`.
        configs: from which the fastest is taken.
        special: what the loop asks for.
        setting: in which it is compiled.
    """

    name: str
    ours: bool
    kernel: str
    configs: tuple[Config, ...]
    special: bool
    setting: Callable[[], Any] = nullcontext


_LARGE: tuple[Config, ...] = ((128, 256, 64, 8, 4), (128, 256, 64, 8, 3))
_MORE: tuple[Config, ...] = (*_LARGE, (128, 128, 64, 4, 3), (128, 128, 64, 4, 4))
PRODUCTS = (
    Side("roles", True, "one_tile", (*_LARGE, (256, 128, 64, 8, 3)), True),
    Side("roles, persistent", True, "persistent", (*_LARGE, (256, 128, 64, 8, 3)), True),
    Side("no roles", True, "one_tile", _MORE, False, without_roles),
    Side("no roles, persistent", True, "persistent", _LARGE, False, without_roles),
    Side("Triton", False, "one_tile", _MORE, False),
    Side("Triton, persistent", False, "persistent", _MORE, False),
    Side("Triton, specialised", False, "persistent", _MORE, True),
)


def attending(width: int, kernel: str) -> tuple[Side, ...]:
    """Those who race in attention with so wide heads."""
    eight: tuple[Config, ...] = ((128, 128, width, 8, 2), (128, 64, width, 8, 3), (256, 64, width, 16, 3))
    four: tuple[Config, ...] = ((128, 64, width, 4, 2), (64, 128, width, 4, 2), (64, 64, width, 4, 3))
    return (
        Side("roles", True, kernel, eight, True),
        Side("no roles", True, kernel, (*four, *eight), False),
        Side("Triton", False, kernel, (*four, *eight), False),
        Side("Triton, specialised", False, kernel, (*four, *eight), True),
    )


@dataclass(frozen=True)
class Subject:
    """What is computed.

    Args:
        work: operations of a call.
        sides: who races.
        vendor: name of the vendor's kernel.
        rival: the call of it, which gives the result.
        make: of a side gives what makes its call for a configuration, and the result that the call writes.
        error: of a result, against float64.
    """

    work: float
    sides: tuple[Side, ...]
    vendor: str
    rival: Function
    make: Callable[[Side], tuple[Call, torch.Tensor]]
    error: Callable[[torch.Tensor], float]


_PART = 1024  # rows whose error is told


def _error(part: torch.Tensor, exact: torch.Tensor) -> float:
    return ((part.double() - exact).square().mean() / exact.square().mean()).sqrt().item()


def product(m: int, n: int, k: int, dtype: torch.dtype) -> Subject:
    """a @ b."""
    a, b = torch.randn(m, k, device="cuda").to(dtype), torch.randn(k, n, device="cuda").to(dtype)
    c = torch.empty(m, n, device="cuda", dtype=dtype)
    out = torch.empty_like(c)
    processors = torch.cuda.get_device_properties(0).multi_processor_count

    def make(side: Side) -> tuple[Call, torch.Tensor]:
        def call(config: Config) -> Function:
            rows, columns, depth, warps, stages = config
            blocks = ([rows, depth], [depth, columns], [rows, columns])
            made = [_descriptor(side.ours)(x, block) for x, block in zip((a, b, c), blocks, strict=True)]
            tiles = -(-m // rows) * -(-n // columns)
            grid = (min(tiles, processors) if side.kernel == "persistent" else tiles,)
            return functools.partial(
                getattr(flavour("descriptor_kernels", side.ours, _KERNELS), side.kernel)[grid], *made, m, n, k,
                M_BLOCK=rows, N_BLOCK=columns, K_BLOCK=depth, GROUP=8, SPECIAL=side.special, num_warps=warps,
                num_stages=stages,
            )  # fmt: skip

        return call, c

    def error(result: torch.Tensor) -> float:
        return _error(result[:_PART], a[:_PART].double() @ b.double())

    return Subject(2.0 * m * n * k, PRODUCTS, "cuBLAS", lambda: torch.mm(a, b, out=out), make, error)


def attention(heads: int, length: int, width: int, dtype: torch.dtype, causal: bool = False) -> Subject:
    """Softmax attention."""
    kernel = "causal_attention" if causal else "attention"
    q, k, v = (torch.randn(1, heads, length, width, device="cuda").to(dtype) for _ in range(3))
    out = torch.empty_like(q)

    def make(side: Side) -> tuple[Call, torch.Tensor]:
        def call(config: Config) -> Function:
            rows, columns, _, warps, stages = config
            flat = [x.view(heads * length, width) for x in (q, k, v, out)]
            blocks = ([rows, width], [columns, width], [columns, width], [rows, width])
            made = [_descriptor(side.ours)(x, block) for x, block in zip(flat, blocks, strict=True)]
            launched = getattr(flavour("descriptor_kernels", side.ours, _KERNELS), kernel)[length // rows, heads]
            return functools.partial(
                launched, *made, length, width**-0.5 * 1.44269504, WIDTH=width, QUERIES=rows, KEYS=columns,
                SPECIAL=side.special, num_warps=warps, num_stages=stages,
            )  # fmt: skip

        return call, out

    def rival() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def error(result: torch.Tensor) -> float:
        scores = q[0, 0, -_PART:].double() @ k[0, 0].double().T * width**-0.5
        if causal:
            scores += torch.full_like(scores, -torch.inf).triu(length - _PART + 1)
        return _error(result[0, 0, -_PART:], torch.softmax(scores, 1) @ v[0, 0].double())

    work = (2.0 if causal else 4.0) * heads * length * length * width
    return Subject(work, attending(width, kernel), "SDPA", rival, make, error)


def fastest(side: Side, subject: Subject, expected: torch.Tensor) -> tuple[Function, Config, float]:
    """The fastest of the configurations whose result is right, and its error."""
    make, result = subject.make(side)
    found, problem = [], ""
    for config in side.configs:
        try:
            with side.setting():
                call = make(config)
                result.fill_(float("nan"))
                call()
                torch.cuda.synchronize()
            error = ((result.float() - expected).abs().max() / expected.abs().max()).item()
            if not error < 2e-2:
                raise ArithmeticError(f"error {error}")
            found.append((turns({"": call}, 7)[""], call, config, subject.error(result)))
        except Exception as failed:
            problem = f"{config}: {type(failed).__name__}: {str(failed)[:200]}"
    if not found:
        raise RuntimeError(problem)
    best = min(found, key=lambda row: row[0])
    return best[1:]


def figures(subject: Subject, only: str, rounds: int, seconds: float) -> Iterator[tuple[Figure, Config | None]]:
    """All kernels on one subject, in turns and then one after another."""
    given = subject.rival()
    expected = given.float()
    calls: dict[str, Function] = {subject.vendor: subject.rival}
    rows: dict[str, tuple[Figure, Config | None]] = {
        subject.vendor: (Figure(subject.vendor, error=subject.error(given)), None)
    }
    for side in subject.sides:
        if not side.name.startswith(only):
            continue
        try:
            calls[side.name], config, error = fastest(side, subject, expected)
            rows[side.name] = (Figure(side.name, error=error), config)
        except Exception as failed:
            rows[side.name] = (Figure(side.name, failure=str(failed)), None)
    work = subject.work * 1e-12
    for name, passed in turns(calls, rounds).items():
        rows[name][0].short = work / passed
    for name, call in calls.items():
        if seconds:
            passed, sensors = sustain(call, seconds)
            figure = rows[name][0]
            figure.long, figure.clock, figure.power = work / passed, sensors.clock, sensors.power
    yield from rows.values()


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "bf16 4096^3": lambda: product(4096, 4096, 4096, torch.bfloat16),
    "bf16 8192^3": lambda: product(8192, 8192, 8192, torch.bfloat16),
    "f16 8192^2x4096": lambda: product(8192, 8192, 4096, torch.float16),
    "f16 8192^2x512": lambda: product(8192, 8192, 512, torch.float16),
    "attention f16 d=128 n=4096": lambda: attention(32, 4096, 128, torch.float16),
    "attention f16 d=64 n=4096": lambda: attention(32, 4096, 64, torch.float16),
    "causal attention f16 d=128 n=4096": lambda: attention(32, 4096, 128, torch.float16, causal=True),
    "causal attention f16 d=64 n=4096": lambda: attention(32, 4096, 64, torch.float16, causal=True),
    "attention f16 d=128 n=16384": lambda: attention(8, 16384, 128, torch.float16),
    "causal attention f16 d=128 n=16384": lambda: attention(8, 16384, 128, torch.float16, causal=True),
}


@click.command()
@click.option("--only", multiple=True, metavar="TEXT", help="Just the subjects whose name contains a TEXT.")
@click.option("--side", default="", metavar="TEXT", help="Just the kernels whose name starts so, and the vendor's.")
@click.option("--rounds", default=20, help="Single calls of each kernel.")
@click.option("--seconds", default=2.5, help="Time of a sustained run; 0 for none.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file.")
def main(only: tuple[str, ...], side: str, rounds: int, seconds: float, out: Path | None) -> None:
    """Measure every subject."""
    found: dict[str, list[dict[str, Any]]] = {}
    click.echo(f"{torch.cuda.get_device_name()}: TFLOP/s of single calls, sustained, by GHz; MHz, W; error")
    for name, subject in SUBJECTS.items():
        if only and not any(text in name for text in only):
            continue
        click.echo(name)
        for figure, config in figures(subject(), side, rounds, seconds):
            click.echo(
                f"  {figure.name:22} {figure.short:6.0f} {figure.long:6.0f} {figure.per_ghz:6.0f}   "
                f"{figure.clock:5.0f} {figure.power:4.0f}   {figure.error:.1e}   {config or ''} {figure.failure}"
            )
            found.setdefault(name, []).append({**asdict(figure), "config": config})
    if out is not None:
        out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "subjects": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
