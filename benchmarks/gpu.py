"""``python -m benchmarks.gpu``: races on an NVIDIA GPU against Triton and torch, in one process.

The kernels are those of `examples/`, loaded twice: as they are, and with `import triton` in place of
`import tilewright`. Each side picks the fastest of the same configurations; then all take turns, the cache of the GPU
cleared before each call, and the medians over the rounds count. Results go to benchmarks/results/ as JSON.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from tilewright.tools.modules import load_file

_FOLDER = tempfile.TemporaryDirectory(prefix="tilewright-bench-")
for _name in ("TILEWRIGHT_CACHE_DIR", "TRITON_CACHE_DIR"):  # both sides compile anew, before either reads its settings
    os.environ[_name] = str(Path(_FOLDER.name) / _name)

RESULTS = Path(__file__).resolve().parent / "results"
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
Function = Callable[[], Any]
Config = dict[str, int]
_CACHE_BYTES = 256 << 20  # several times the L2 of any GPU so far


@dataclass(frozen=True)
class Race:
    """A row of the table.

    Args:
        subject, case: names.
        example: file of `examples/` with the kernel, or of `folder`.
        floor: the ratio to Triton that must be reached; 0 for rows that are there to be looked at.
        work: operations or bytes of a call.
        unit: "TB/s" or "TFLOP/s".
        configs: configurations that both sides may choose from.
        prepare: data; gives a function that makes the call of a flavour of the example with a configuration, the rival
            of torch, and the result to compare with.
        tolerance: largest allowed difference from torch's result over its largest value.
        folder: that the kernel is in.
    """

    subject: str
    case: str
    example: str
    floor: float
    work: float
    unit: str
    configs: tuple[Config, ...]
    prepare: Callable[[], tuple[Callable[[ModuleType, Config], tuple[Function, torch.Tensor]], Function]]
    tolerance: float = 2e-2
    folder: Path = EXAMPLES


@dataclass
class Row:
    """What a race gave; times in seconds per call."""

    race: Race
    ours: float = math.nan
    triton: float = math.nan
    torch: float = math.nan
    config: Config = field(default_factory=dict)
    triton_config: Config = field(default_factory=dict)
    compile_ours: float = math.nan
    compile_triton: float = math.nan
    error: float = math.nan
    failure: str = ""

    @property
    def ratio(self) -> float:
        return self.triton / self.ours

    @property
    def rate(self) -> float:
        return self.race.work / self.ours / 1e12


# --- the two flavours of an example -----------------------------------------------------------------------


def flavour(example: str, ours: bool, folder: Path = EXAMPLES) -> ModuleType:
    """A module of `examples/` (or another folder) as it is, or with Triton in Tilewright's place."""
    text = (folder / f"{example}.py").read_text()
    if not ours:
        text = text.replace("import tilewright as triton", "import triton")
        text = text.replace("import tilewright.language as tl", "import triton.language as tl")
    path = Path(_FOLDER.name) / f"{example}_{'tilewright' if ours else 'triton'}.py"
    path.write_text(text)
    return load_file(path, register=True)


# --- timing -----------------------------------------------------------------------------------------------


def turns(functions: dict[str, Function], rounds: int) -> dict[str, float]:
    """Median seconds of each function, called in turns with a cold cache of the GPU."""
    flush = torch.empty(_CACHE_BYTES, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in functions}
    order = list(functions)
    for function in functions.values():
        for _ in range(3):
            function()
    for _ in range(rounds):
        for name in order:
            flush.zero_()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            functions[name]()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e-3)
        order.append(order.pop(0))
    return {name: statistics.median(found) for name, found in times.items()}


def first_call(function: Function) -> float:
    """Seconds of a call that compiles."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def run(race: Race, rounds: int, console: Console) -> Row:
    """Race one row; what fails is said in the row."""
    row = Row(race)
    make, rival = race.prepare()
    expected = rival().float()
    candidates: dict[str, Function] = {"torch": rival}
    for side in ("ours", "triton"):
        try:
            module = flavour(race.example, side == "ours", race.folder)
            seconds, config, call, error = _best(make, module, race, expected)
        except Exception as error_:
            row.failure += f"{side}: {type(error_).__name__}: {str(error_)[:300]} "
            console.print(f"{race.subject} {race.case} {side}: {type(error_).__name__}: {error_}"[:2000], markup=False)
            continue
        candidates[side] = call
        setattr(row, f"compile_{side}", seconds)
        if side == "ours":
            row.config, row.error = config, error
        else:
            row.triton_config = config
    for name, seconds in turns(candidates, rounds).items():
        setattr(row, name, seconds)
    return row


def _best(
    make: Callable[[ModuleType, Config], tuple[Function, torch.Tensor]],
    module: ModuleType,
    race: Race,
    expected: torch.Tensor,
) -> tuple[float, Config, Function, float]:
    """Compile time of the first configuration, and the fastest that is right."""
    found: list[tuple[float, int, Function, float]] = []
    compile_seconds = math.nan
    problem: Exception | None = None
    for number, config in enumerate(race.configs):
        try:
            call, out = make(module, config)
            out.fill_(math.nan if out.is_floating_point() else 77)
            seconds = first_call(call)
            compile_seconds = seconds if number == 0 else compile_seconds
            error = ((out.float() - expected).abs().max() / expected.abs().max()).item()
            if not error <= race.tolerance:
                raise ArithmeticError(f"wrong result with {config}: {error:.2e} of the largest element")
            found.append((turns({"": call}, 5)[""], number, call, error))
        except Exception as failed:
            problem = failed
    if not found:
        assert problem is not None
        raise problem
    _, number, call, error = min(found, key=lambda entry: entry[:2])
    return compile_seconds, race.configs[number], call, error


# --- the rows -----------------------------------------------------------------------------------------------


def _add(n: int) -> Race:
    def prepare() -> Any:
        x, y = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")

        def make(module: ModuleType, config: Config) -> tuple[Function, torch.Tensor]:
            out = torch.empty_like(x)
            grid = (-(-n // config["BLOCK"]),)
            return lambda: module.add_kernel[grid](x, y, out, n, **config), out

        out = torch.empty_like(x)
        return make, lambda: torch.add(x, y, out=out)

    configs = ({"BLOCK": 1024, "num_warps": 4}, {"BLOCK": 4096, "num_warps": 8})
    return Race("vector add", f"f32 2^{int(math.log2(n))}", "vector_add", 0.95, 12.0 * n, "TB/s", configs, prepare)


def _softmax(rows: int, columns: int, floor: float = 0.95, warps: tuple[int, ...] = (4, 8, 16)) -> Race:
    def prepare() -> Any:
        x = torch.randn(rows, columns, device="cuda")

        def make(module: ModuleType, config: Config) -> tuple[Function, torch.Tensor]:
            out = torch.empty_like(x)
            return (
                lambda: module.softmax_kernel[(rows,)](
                    out, x, x.stride(0), out.stride(0), columns, BLOCK=1 << (columns - 1).bit_length(), **config
                ),
                out,
            )

        return make, lambda: torch.softmax(x, 1)

    configs = tuple({"num_warps": count} for count in warps)
    work = 8.0 * rows * columns
    return Race("softmax", f"f32 {rows}x{columns}", "softmax", floor, work, "TB/s", configs, prepare, 1e-5)


def _layer_norm(rows: int, columns: int) -> Race:
    def prepare() -> Any:
        x = torch.randn(rows, columns, device="cuda", dtype=torch.float16)
        weight, bias = torch.rand_like(x[0]), torch.rand_like(x[0])

        def make(module: ModuleType, config: Config) -> tuple[Function, torch.Tensor]:
            out = torch.empty_like(x)
            return (
                lambda: module.layer_norm_kernel[(rows,)](
                    x, out, weight, bias, x.stride(0), columns, 1e-5, BLOCK=columns, **config
                ),
                out,
            )

        return make, lambda: torch.nn.functional.layer_norm(x, (columns,), weight, bias, 1e-5)

    configs = tuple({"num_warps": warps} for warps in (4, 8, 16))
    work = 4.0 * rows * columns
    return Race("layer norm", f"f16 {rows}x{columns}", "layer_norm", 0.95, work, "TB/s", configs, prepare)


def _matmul(
    sizes: int | tuple[int, int, int], dtype: torch.dtype, name: str, floor: float, precision: str = "tf32"
) -> Race:
    """A product, square if one size is given, else of rows, columns and depth; 8-bit floats, which tensor cores take
    along K alone, have B as a transposed view."""
    m, n, k = (sizes, sizes, sizes) if isinstance(sizes, int) else sizes

    def prepare() -> Any:
        narrow = dtype.itemsize == 1
        a = torch.randn(m, k, device="cuda").to(dtype)
        b = torch.randn(n, k, device="cuda").to(dtype).T if narrow else torch.randn(k, n, device="cuda").to(dtype)
        kind = torch.float16 if narrow else dtype

        def make(module: ModuleType, config: Config) -> tuple[Function, torch.Tensor]:
            out = torch.empty(m, n, device="cuda", dtype=kind)
            grid = (-(-m // config["BLOCK_M"]) * -(-n // config["BLOCK_N"]),)
            accumulator = module.tl.float32

            def call() -> None:
                module.matmul_kernel[grid](
                    a, b, out, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0),
                    out.stride(1), GROUP_M=8, ACC_TYPE=accumulator, PRECISION=precision, EVEN_K=True, **config,
                )  # fmt: skip

            return call, out

        one = torch.ones((), device="cuda")
        out = torch.empty(m, n, device="cuda", dtype=kind)

        def rival() -> torch.Tensor:
            if narrow:
                return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=kind)
            torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            return torch.mm(a, b, out=out)

        return make, rival

    configs = _configs(_tiles(m, dtype))
    case = f"{name} {n}^3" if m == n == k else f"{name} {m}x{n}x{k}"
    return Race("matmul", case, "matmul", floor, 2.0 * m * n * k, "TFLOP/s", configs, prepare)


def _few_rows(m: int, n: int, k: int) -> Race:
    """A product that tells the caches that B is read once; sides are multiples of the tiles."""

    def prepare() -> Any:
        a, b = (torch.randn(*shape, device="cuda").bfloat16() for shape in ((m, k), (k, n)))

        def make(module: ModuleType, config: Config) -> tuple[Function, torch.Tensor]:
            out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            grid = (n // config["BLOCK_N"],)
            return lambda: module.few_rows_kernel[grid](a, b, out, m, n, k, k, n, n, **config), out

        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        return make, lambda: torch.mm(a, b, out=out)

    case, work = f"bf16 {m}x{n}x{k}", 2.0 * m * n * k
    configs = _configs(_tiles(m, torch.bfloat16))
    return Race("matmul, B once", case, "kernels", 0.7, work, "TFLOP/s", configs, prepare, folder=RESULTS.parent)


def _configs(tiles: tuple[tuple[int, int, int, int, int], ...]) -> tuple[Config, ...]:
    """Tiles with warps and stages as the launch wants them."""
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return tuple(dict(zip(names, tile, strict=True)) for tile in tiles)


def _tiles(rows: int, dtype: torch.dtype) -> tuple[tuple[int, int, int, int, int], ...]:
    """Tiles of a product with so many rows, each with warps and stages."""
    if rows <= 128:  # as many bytes a second as memory gives: many small programs, which load deep along K
        few = max(16, rows)
        return (
            (few, 32, 128, 4, 5), (few, 64, 128, 4, 4), (few, 64, 64, 4, 8), (few, 64, 64, 8, 8)
        )  # fmt: skip
    if dtype == torch.float32:
        return (
            (256, 128, 32, 8, 4), (256, 128, 32, 8, 3), (128, 128, 32, 8, 3), (128, 128, 16, 8, 3), (64, 128, 32, 4, 3),
            (128, 64, 32, 4, 3),
        )  # fmt: skip
    if dtype.itemsize == 1:
        return (128, 256, 128, 8, 3), (128, 256, 128, 8, 4), (128, 128, 128, 8, 4)
    return (
        (128, 128, 64, 4, 3), (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (128, 128, 64, 8, 4)
    )  # fmt: skip


def _attention(heads: int, n_ctx: int, head_dim: int, causal: bool, dtype: torch.dtype = torch.bfloat16) -> Race:
    """Attention of a head's queries; f32 is multiplied as tf32, by Triton as well."""

    def prepare() -> Any:
        q, k, v = (torch.randn(1, heads, n_ctx, head_dim, device="cuda", dtype=dtype) for _ in range(3))

        def make(module: ModuleType, config: Config) -> tuple[Function, torch.Tensor]:
            out = torch.empty_like(q)
            grid = (-(-n_ctx // config["BLOCK_M"]), heads)

            def call() -> None:
                module.attention_kernel[grid](
                    q, k, v, out, q.stride(1), q.stride(2), k.stride(1), k.stride(2), v.stride(1), v.stride(2),
                    out.stride(1), out.stride(2), n_ctx, head_dim**-0.5, HEAD_DIM=head_dim, CAUSAL=causal, EVEN=True,
                    **config,
                )  # fmt: skip

            return call, out

        return make, lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    configs = tuple(
        {"BLOCK_M": m, "BLOCK_N": n, "num_warps": warps, "num_stages": stages}
        for m, n, warps, stages in (
            ((128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2), (128, 128, 8, 3))
            if dtype.itemsize == 2
            else ((64, 32, 4, 2), (128, 32, 8, 2), (64, 64, 4, 2), (128, 64, 8, 2))
        )
    )
    work = 4.0 * heads * n_ctx * n_ctx * head_dim * (0.5 if causal else 1.0)
    case = f"{'bf16' if dtype.itemsize == 2 else 'tf32'} d={head_dim} n={n_ctx}{' causal' if causal else ''}"
    return Race("attention", case, "attention", 0.5, work, "TFLOP/s", configs, prepare)


RACES: tuple[Race, ...] = (
    _add(1 << 27),
    _softmax(8192, 1024),
    _softmax(8192, 8192),
    _softmax(8192, 12672),
    _softmax(4096, 65536, 1.3, (8, 16, 32)),
    _softmax(4096, 131072, 1.3, (32,)),
    _layer_norm(4096, 4096),
    _layer_norm(8192, 8192),
    _matmul(4096, torch.bfloat16, "bf16", 0.7),
    _matmul(4096, torch.float16, "f16", 0.7),
    _matmul(8192, torch.bfloat16, "bf16", 0.7),
    _matmul((8192, 8192, 512), torch.float16, "f16", 0.7),
    *(_matmul((rows, 8192, 8192), torch.bfloat16, "bf16", 0.7) for rows in (1, 16, 64, 128)),
    *(_few_rows(rows, 8192, 8192) for rows in (64, 128)),
    _matmul(4096, torch.float8_e4m3fn, "fp8", 0.0),
    _matmul(8192, torch.float8_e4m3fn, "fp8", 0.0),
    _matmul(4096, torch.float32, "tf32", 0.0),
    _matmul(4096, torch.float32, "f32", 0.0, "ieee"),
    _attention(32, 4096, 128, False),
    _attention(32, 4096, 128, True),
    _attention(16, 4096, 128, False, torch.float32),
)


# --- report -------------------------------------------------------------------------------------------------


def warm_up(console: Console) -> None:
    """Have both compilers load what they load once in a process."""
    x = torch.rand(1000, device="cuda")
    for ours in (True, False):
        try:
            flavour("vector_add", ours).add(x, x, BLOCK=128)
        except Exception as error:
            console.print(f"warm-up: {type(error).__name__}: {error}", markup=False)


def launch_seconds(rounds: int) -> dict[str, float]:
    """Median seconds that the caller spends on a launch of an empty kernel with six tensors, for both sides, and on
    `torch.add(out=)`."""
    tensors = [torch.empty(16, device="cuda") for _ in range(6)]
    first, second, third = tensors[:3]
    calls: dict[str, Callable[[], Any]] = {"torch": lambda: torch.add(first, second, out=third)}
    for name in ("ours", "triton"):
        kernel = flavour("kernels", name == "ours", Path(__file__).parent).empty_kernel
        calls[name] = lambda kernel=kernel: kernel[(1,)](*tensors)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(200):
                call()
            seconds = (time.perf_counter() - begin) / 200
            times[name] += [seconds] if number else []  # the first compiles
    return {name: statistics.median(found) for name, found in times.items()}


def rows(only: tuple[str, ...], rounds: int, console: Console) -> Iterator[Row]:
    """Run the races whose name contains one of `only`, or all."""
    torch.manual_seed(0)
    warm_up(console)
    for race in RACES:
        if not only or any(text in f"{race.subject} {race.case}" for text in only):
            yield run(race, rounds, console)


def draw(console: Console, found: list[Row]) -> None:
    """Print the table."""
    title = f"{torch.cuda.get_device_name()}: times against Triton and torch"
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in ("kernel", "case", "ours", "rate", "Triton", "torch", "of Triton", "floor", "compile", "Triton's", ""):
        table.add_column(name, justify="left" if name in ("kernel", "case") else "right", no_wrap=True)
    for row in found:
        table.add_row(
            row.race.subject, row.race.case, _us(row.ours), f"{row.rate:.2f} {row.race.unit}", _us(row.triton),
            _us(row.torch), f"{row.ratio:.2f}", f"{row.race.floor:.2f}", f"{row.compile_ours:.2f} s",
            f"{row.compile_triton:.2f} s", _verdict(row),
        )  # fmt: skip
    console.print(table)


def _verdict(row: Row) -> str:
    return "" if not row.race.floor else "pass" if row.ratio >= row.race.floor else "miss"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.{1 if seconds < 1e-4 else 0}f} µs"


def document(found: list[Row], launches: dict[str, float], rounds: int) -> dict[str, Any]:
    """Everything measured, with machine and versions."""
    import triton

    import tilewright

    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": f"python -m benchmarks.gpu --rounds {rounds}",
        "gpu": torch.cuda.get_device_name(),
        "versions": {
            "tilewright": tilewright.__version__, "triton": triton.__version__, "torch": torch.__version__,
            "cuda": torch.version.cuda,
        },
        "launch_seconds": launches,
        "rows": [
            {
                "subject": row.race.subject, "case": row.race.case, "unit": row.race.unit, "rate": row.rate,
                "seconds": row.ours, "triton_seconds": row.triton, "torch_seconds": row.torch, "ratio": row.ratio,
                "floor": row.race.floor, "config": row.config, "triton_config": row.triton_config,
                "compile_seconds": row.compile_ours, "triton_compile_seconds": row.compile_triton,
                "error": row.error, "failure": row.failure,
            }
            for row in found
        ],
    }  # fmt: skip


@click.command()
@click.option("--only", multiple=True, metavar="TEXT", help="Just the rows whose subject and case contain a TEXT.")
@click.option("--rounds", default=30, help="Timed calls of each function.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file (default: in results/, named after the GPU).")
def main(only: tuple[str, ...], rounds: int, out: Path | None) -> None:
    """Measure every row of the GPU table."""
    if not torch.cuda.is_available():
        raise click.ClickException("torch sees no CUDA device")
    console = Console(width=160)
    found = list(rows(only, rounds, console))
    draw(console, found)
    launches = launch_seconds(rounds)
    console.print(f"launch: {', '.join(f'{name} {_us(seconds)}' for name, seconds in launches.items())}")
    path = out or RESULTS / f"{torch.cuda.get_device_name().lower().replace(' ', '-')}.json"
    path.write_text(json.dumps(document(found, launches, rounds), indent=1).replace("NaN", "null") + "\n")
    console.print(f"written to {path}", markup=False)


if __name__ == "__main__":
    main()
