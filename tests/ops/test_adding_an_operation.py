"""What docs/layout.md promises: a new elementwise operation needs three files, one with code of its own four."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.meta.sources import ROOT

# File: what stands there, what is put before it.
EDITS = {
    "ops/math.py": {
        '    "floor": (np.floor': '    "cube": (lambda x: x * x * x, "x to the third power.", 2),\n',
        "floor = _unary(": 'cube = _unary("cube", "`x` to the third power.", "tl.cube(2.0)\\n        8.0")\n',
    },
    "backends/llvm/elementwise.py": {
        '        "floor": _intrinsic': '        "cube": lambda f, x, **_: f.op("fmul", x, f.op("fmul", x, x)),\n',
    },
    "language/names.py": {"    cos,\n": "    cube,\n", '    "cumprod",\n': '    "cube",\n'},
}
PROGRAM = """
import numpy as np, tilewright, tilewright.language as tl
from tilewright.tools.aot import source_for

def program(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.cube(tl.load(x + i)))

x = np.linspace(-3, 3, 16, dtype=np.float32)
for interpret in (False, True):
    o = np.zeros_like(x)
    tilewright.jit(program, interpret=interpret)[(1,)](x, o, N=16)
    np.testing.assert_allclose(o, x * x * x, rtol=1e-6)
made = tilewright.compile(source_for(tilewright.jit(program), "*fp32:16, *fp32:16, 16"), target="cuda:90")
assert made.asm["ptx"].count("mul") >= 2, made.asm["ptx"]
print(tl.cube.__doc__.splitlines()[0])
"""


# An operation with code of its own: sums of elements by the bin that an index names, for floats and integers.
BY_HAND = {
    "ops/gather.py": {
        "from tilewright.ops.spec import Array": "from tilewright.ops.spec import NoGradient\n",
        "def _infer_gather(": '''@irdl_op_definition
class BinSumsOp(FlatOp):
    """result[b] = sum of src[i] over all i where bins[i] = b and the optional mask holds."""

    name = "tt.bin_sums"
    src = operand_def()
    bins = operand_def()
    masked = var_operand_def()
    result = result_def()
    traits = traits_def(Pure(), Collective())

    @property
    def mask(self) -> SSAValue | None:
        return self.operands[2] if len(self.operands) > 2 else None

    @classmethod
    def parse(cls, parser: Parser) -> BinSumsOp:
        operands = parse_operand_list(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        inputs, outputs = parse_signature(parser)
        return make(cls, resolve(parser, operands, inputs), outputs, attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_operands(printer, self.operands)
        print_attrs(printer, self)
        printer.print_string(" : ")
        print_signature(printer, self.operand_types, self.result_types)


def _infer_bin_sums(call: Call) -> Sequence[Attribute]:
    src, bins, mask = padded(call.operand_types, 3)
    assert src is not None and bins is not None
    if len(shape_of(src)) != 1 or shape_of(bins) != shape_of(src):
        raise ShapeError(f"bin_sums takes two 1D tiles of one shape, got {list(shape_of(src))}, {list(shape_of(bins))}")
    if element_type(src) not in (f32, i32) or element_type(bins) != i32:
        raise DTypeError(f"bin_sums adds float32 or int32 by int32, not {element_type(src)} by {element_type(bins)}")
    expect("mask of tt.bin_sums", mask, with_element(src, i1))
    return call.result_types


def _reference_bin_sums(call: Call, src: Array, bins: Array, mask: Array | None = None) -> Array:
    (count,) = shape_of(call.result_types[0])
    wanted = (bins >= 0) & (bins < count) & (mask is None or mask)
    sums = np.zeros(count, src.dtype)
    np.add.at(sums, bins[wanted], src[wanted])
    return sums


def _samples_bin_sums(rng: np.random.Generator) -> Iterable[Sample]:
    for size, count in ((64, 16), (12, 3)):
        values = rng.integers(-9, 9, size).astype(np.int32)
        bins = rng.integers(-1, count + 1, size).astype(np.int32)
        types = (tile_type((size,), i32), tile_type((size,), i32))
        yield Sample((values, bins), types, result_types=(tile_type((count,), i32),))
    zeros = np.zeros((4, 8), np.int32)
    types = (tile_type((4, 8), i32), tile_type((4, 8), i32))
    yield Sample((zeros, zeros), types, result_types=(tile_type((4,), i32),), error="1D tiles")


register(
    OpSpec(
        BinSumsOp,
        _infer_bin_sums,
        _reference_bin_sums,
        _samples_bin_sums,
        summary="sum elements by bins",
        vjp=NoGradient("sums by bins are new", "sum a selection for each bin"),
    )
)


@builtin(method=True)
def bin_sums(b: Emitter, input: tensor, bins: tensor, num_bins: Any, mask: Any = None) -> tensor:
    """Sums of the elements of `input` that `bins` gives each number 0 to `num_bins` - 1."""
    mask = None if unwrap(mask) is None else to_tensor(b, mask)
    input = to_tensor(b, input)
    return b.emit(BinSumsOp, BlockType(input.dtype, (unwrap(num_bins),)), input, to_tensor(b, bins), mask)


''',
    },
    "backends/cpu/emit/histogram.py": {
        "@emits(HistogramOp)\n": '''@emits(BinSumsOp)
def emit_bin_sums(low: FunctionLowering, step: Step) -> None:
    """Emit sums by bins, one element after the other."""
    (sink,) = step.sinks
    ev, f = low.ev, low.f
    (target,) = sink.targets
    assert target is not None
    sums, t = f.gep(ev.arena, target.offset), storage(target.elem)
    f.memset(sums, 0, target.size)

    def add(lane: V, values: list[V]) -> None:
        value, place, *mask = values
        inside = f.and_(f.icmp("ult", place, target.shape[0]), mask[0] if mask else const(I1, 1))
        with f.if_(inside):
            address = f.gep(sums, f.cast("zext", place, I64), t)
            f.store(f.op("add" if t.is_int else "fadd", f.load(t, address), value), address)

    chunking = chunk_group(step, f.isa, ev.placed, ev.analysis)
    for_each_chunk(ev, sink, chunking, lambda values: for_each_lane(ev, values, add), masked=step)


''',
        "from tilewright.backends.llvm.casts": "from tilewright.ops.gather import BinSumsOp\n",
    },
    "backends/nvidia/emit/gather.py": {
        "# --- histogram ---": '''@scratch(BinSumsOp)
def bin_sums_scratch(op: Operation) -> int:
    """Bytes of the sums."""
    return starts([i32], padded_shape(shape_of(op.results[0].type))[0])[-1]


@emits(BinSumsOp)
def emit_bin_sums(k: Kernel, op: Operation) -> None:
    """Sums in shared memory; elements of other bins are left out."""
    f, layout, (count,) = k.f, layout_of(op.operands[0]), shape_of(op.results[0].type)
    t = k.element(op.results[0])
    room = Room(k, k.scratch(op), i32)
    _zero(k, room, padded_shape((count,))[0])
    f.barrier()
    values, bins, *masks = (k.tile(operand) for operand in op.operands)
    inside, owns = k.inside(op.operands[0].type), k.owns(layout)
    for register in k.owned_registers(layout):
        wanted = f.and_(f.and_(owns, inside[register]), f.icmp("ult", bins[register], count))
        wanted = f.and_(wanted, masks[0][register]) if masks else wanted
        place, value = room.address(Place(bins[register])), values[register]
        how, kind = ("u32", "r") if t.is_int else ("f32", "f")
        f.ptx(f"@$2 red.shared.add.{how} [$0], $1;", f"l,{kind},b", [place, value, wanted])
    f.barrier()
    result = layout_of(op.results[0])
    columns = {dim: result.columns_of(dim) for dim in POSITION}
    sums = [room.get(place) for place in positions(k, columns, range(result.in_sizes["register"]))]
    k.set(op.results[0], sums if t.is_int else [f.cast("bitcast", total, t) for total in sums])


''',
        "from tilewright.base.errors": "from tilewright.ops.gather import BinSumsOp\n",
    },
    "language/names.py": {
        "from tilewright.ops.gather import": "from tilewright.ops.gather import bin_sums\n",
        '    "cumprod",\n': '    "bin_sums",\n',
    },
}
BY_HAND_PROGRAM = """
import numpy as np, pytest, tilewright, tilewright.language as tl
from pathlib import Path
from rich.console import Console
from tests.fuzz import generator
from tests.fuzz.check import check
from tests.ops import test_generated as generated
from tilewright.base.errors import NotDifferentiableError
from tilewright.ops.spec import REGISTRY
from tilewright.sanitize import checking
from tilewright.tools.aot import source_for
from tilewright.tools.explain import show_explained

@tilewright.jit
def program(x, bins, o, n, N: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, N)
    values = tl.load(x + i, i < n)
    sums = tl.bin_sums(values * 2, tl.load(bins + i, i < n), B, i < n)
    tl.store(o + tl.arange(0, B), sums + tl.arange(0, B))

# on the CPU and in interpreter mode; types, odd numbers of elements and bins
for dtype in (np.float32, np.int32):
    for n, size, count in ((64, 64, 16), (37, 64, 16), (12, 12, 3), (1, 1, 1)):
        x, bins = np.arange(-5, size - 5, dtype=dtype), (np.arange(size, dtype=np.int32) * 7) % (count + 2) - 1
        wanted = [2 * x[:n][bins[:n] == b].sum() + b for b in range(count)]
        for kernel in (program, tilewright.jit(program.fn, interpret=True)):
            o = np.zeros(count, dtype)
            kernel[(1,)](x, bins, o, n, N=size, B=count)
            np.testing.assert_array_equal(o, wanted)

# under all checks: no false alarm, and the fault of what it reads is found
for n, faults in ((60, False), (65, True)):
    o = np.zeros(16, np.float32)
    with checking("all") as found:
        program[(1,)](np.ones(64, np.float32), np.zeros(64, np.int32), o, n, N=128, B=16)
    assert bool(found.faults) == faults, found.faults
    assert faults or o[0] == 120
x = np.full(64, 3e38, np.float32)
with checking("nan") as found:
    program[(1,)](x / 3, np.zeros(64, np.int32), o, 64, N=64, B=16)
assert "tl.bin_sums" in found.faults[0].render(), found.faults

# every stage of both back ends, and what is told of it
for target, stage, text in (("cpu", "loops", "tt.bin_sums"), ("cuda:90", "ptx", "red.shared.add.f32")):
    made = tilewright.compile(source_for(program, "*fp32:16, *i32:16, *fp32:16, i32, 64, 16"), target=target)
    assert text in made.asm[stage], made.asm[stage]
    assert "tt.bin_sums" in made.asm["ttir"] and "bin_sums" in made.asm["nest"], made.asm["nest"]
    with open("explained.txt", "w") as file:
        show_explained(Console(file=file, width=150), made)
    assert "tl.bin_sums" in Path("explained.txt").read_text()
    assert len({told.line for told in made.decisions if told.subject == "access"}) == 3, made.decisions

# gradients refuse it by its own words
with pytest.raises(NotDifferentiableError, match="sums by bins are new"):
    given = np.ones(64, np.float32), np.zeros(64, np.int32), np.zeros(16, np.float32)
    tilewright.grad(program, "x")[(1,)](*given, 64, N=64, B=16, d_o=given[2], d_x=np.zeros(64, np.float32))

# the tests that are made of its record
spec = REGISTRY["tt.bin_sums"]
for test in (generated.test_is_documented, generated.test_has_reference_and_samples,
             generated.test_every_back_end_has_a_lowering_or_refuses, generated.test_prints_parses_and_verifies,
             generated.test_samples_have_the_working_form_of_their_types, generated.test_bad_samples_say_what_is_wrong):
    test(spec)

# random kernels
@generator.family(1000)
def bin_sums(g):
    a = g.tile(lambda value: len(value.shape) == 1 and value.dtype == "int32")
    count = g.random.choice((1, 2, 16))
    g.define(f"tl.bin_sums({a.name}, {a.name} & {count - 1}, {count})", (count,), "int32")

profile = generator.Profile(statements=4)
drawn = [seed for seed in range(40) if "bin_sums" in generator.generate(seed, profile).source()][:2]
assert len(drawn) == 2
for seed in drawn:
    case = Path(f"case_{seed}.py").resolve()
    case.write_text(generator.generate(seed, profile).source())
    assert check(case).passed, check(case).detail
"""


def run_with(tmp_path: Path, edits: dict[str, dict[str, str]], program: str) -> str:
    """What a program prints with a copy of the package in which files have been added to."""
    package = tmp_path / "tilewright"
    shutil.copytree(ROOT / "tilewright", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, insertions in edits.items():
        text = (package / name).read_text()
        for before, lines in insertions.items():
            assert text.count(before) == 1, (name, before)
            text = text.replace(before, lines + before)
        (package / name).write_text(text)
    (tmp_path / "program.py").write_text(program)
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    environment = {"PYTHONPATH": path, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "PATH": ""}
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_elementwise_operation_is_three_files(tmp_path: Path) -> None:
    assert len(EDITS) <= 3
    assert run_with(tmp_path, EDITS, PROGRAM) == "`x` to the third power."


def test_an_operation_with_code_of_its_own_is_four_files(tmp_path: Path) -> None:
    assert len(BY_HAND) <= 4
    run_with(tmp_path, BY_HAND, BY_HAND_PROGRAM)
