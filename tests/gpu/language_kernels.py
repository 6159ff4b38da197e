"""Small kernels that use every name of the language between them; `language_case.CASES` has them by name.

They run on a GPU (`test_language.py`), and where there is none on the simulated one (`tests/language/test_on_cuda.py`).
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tests.gpu.language_case import Array, N, add, floats, integers, zeros
from tilewright.base.minifloat import from_memory, to_memory

# --- types ------------------------------------------------------------------------------------------------------


@tw.jit
def there_and_back(x, out, T: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.cast(tl.load(x + i), T)
    tl.static_assert(value.dtype == T)
    tl.store(out + i, (value + value).to(tl.float32) if T.primitive_bitwidth > 8 else value.to(tl.float32))


for _type in (
    tl.int1, tl.int8, tl.int16, tl.int32, tl.int64, tl.uint8, tl.uint16, tl.uint32, tl.uint64, tl.float16,
    tl.bfloat16, tl.float32, tl.float64, tl.float8e5, tl.float8e4b15,
):  # fmt: skip
    add(f"type {_type}", there_and_back, floats(), zeros(), T=_type, N=N)
add("type fp8e4nv", there_and_back, floats(), zeros(), T=tl.float8e4nv, N=N, least=89)


type_named = tl.constexpr_function(tl.str_to_ty)
integer_type = tl.constexpr_function(tl.core.get_int_dtype)


@tw.jit
def questions(x: tl.const, out, N: tl.constexpr):
    i = tl.arange(0, N)
    value: tl.tensor = tl.load(x + i)
    tl.static_assert(value.type == tl.block_type(tl.float32, [N]))
    tl.static_assert(isinstance(value, tl.core.base_value) and isinstance(value.type, tl.core.base_type))
    tl.static_assert(isinstance(value.dtype, tl.dtype) and value.dtype != tl.void)
    tl.static_assert(isinstance(N, tl.constexpr) and tl.PropagateNan.ALL != tl.PropagateNan.NONE)
    pair = tl.tuple((value, value + 1))
    tl.static_assert(isinstance(pair, tl.tuple) and tl.tuple_type([tl.float32]) != tl.constexpr_type(3))
    tl.static_assert(type_named("*fp32", None) == x.dtype)
    places = (out + i).to(tl.int64).to(tl.pi32_t)
    tl.static_assert(places.dtype == tl.pointer_type(tl.int32))
    tl.store(places, pair[0].to(tl.int32) + pair[tl.slice(1, 2)][0].to(integer_type(32, True)))


add("types", questions, floats(), zeros(dtype=np.int32), N=N)


# --- creation and shapes ------------------------------------------------------------------------------------------


@tw.jit
def creation(out, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.full((N,), 3, tl.float32) + tl.zeros((N,), tl.float32) + tl.zeros_like(i) + tl.to_tensor(2)
    tl.store(out + i, total * tl.num_programs(0) + tl.program_id(0) + i)


add("creation", creation, zeros(), N=N)


@tw.jit
def shapes(x, out, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.arange(0, N), tl.arange(0, M)
    tile = tl.load(x + column[:, None] * N + row[None, :])
    wide, _ = tl.broadcast(tl.expand_dims(row, 0), column[:, None])
    tile += wide + tl.broadcast_to(column[:, None], (M, N))
    turned = tl.permute(tl.trans(tile), (1, 0)) + tl.view(tl.ravel(tile), (M, N))
    squeezed = tl.squeeze(tl.unsqueeze(turned, 0), 0)
    left, right = tl.split(tl.join(squeezed, squeezed * 2))
    mixed = tl.reshape(tl.interleave(left, right), (2 * M * N,))
    both = tl.cat(tl.flip(mixed), mixed, can_reorder=True)
    tl.store(out + tl.arange(0, 4 * M * N), tl.sort(both))
    tl.store(out + 4 * M * N, tl.item(tl.sum(tile, 1, keep_dims=True)[0:1, :]))


add("shapes", shapes, integers(8, 16), zeros(513, dtype=np.int32), M=8, N=16)


@tw.jit
def any_shape(x, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tile = tl.load(x + at)
    tile[1:-1, ::2] = tile[1:-1, ::2] * 2
    tl.store(out + at, tile + tl.sum(tile, 0)[None, :] - tl.cumsum(tile, 1) + tile[..., -1][:, None])


add("any shape", any_shape, integers(5, 7), zeros(5, 7, dtype=np.int32), M=5, N=7)


@tw.jit
def order_of_programs(out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr):
    i, j = tl.swizzle2d(tl.program_id(0), tl.program_id(1), ROWS, COLUMNS, GROUP)
    tl.store(out + i * COLUMNS + j, tl.program_id(0) * COLUMNS + tl.program_id(1))


add(
    "swizzle2d", order_of_programs, zeros(5, 4, dtype=np.int32), grid=(5, 4), ROWS=5, COLUMNS=4, GROUP=2
)  # fmt: skip


@tw.jit
def selection(x, index, out, counts, N: tl.constexpr):
    i = tl.arange(0, N)
    value, place = tl.load(x + i), tl.load(index + i) % N
    picked = tl.gather(value, place, 0)
    tl.store(out + i, tl.where(place > 20, picked, tl.expect_zero(value - value, True)))
    tl.store(counts + tl.arange(0, 16), tl.histogram(place, 16))


add("selection", selection, floats(), integers(), zeros(), zeros(16, dtype=np.int32), N=N)


# --- memory -------------------------------------------------------------------------------------------------------


@tw.jit
def block_pointers(x, out, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (4, 8), (1, 0))
    target = tl.make_block_ptr(out, (M, N), (N, 1), (0, 0), (4, 8), (1, 0))
    for _ in tl.range(0, N, 8):
        tl.store(target, tl.load(source, boundary_check=(0, 1)) * 2, boundary_check=(0, 1))
        source, target = tl.advance(source, (0, 8)), tl.advance(target, (0, 8))


add("block pointers", block_pointers, floats(3, 20), zeros(3, 20), M=3, N=20)


@tw.jit
def descriptors(x, out, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [4, 8])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [4, 8])
    tl.static_assert(isinstance(source, tl.tensor_descriptor))
    tl.static_assert(isinstance(source.type, tl.tensor_descriptor_type))
    for row in range(0, M, 4):
        tl.store_tensor_descriptor(target, [row, 4], tl.load_tensor_descriptor(source, [row, 8]))
        target.atomic_add([row, 0], source.load([row, 0]))
    rows = tl.arange(0, 8) % M
    tl.make_tensor_descriptor(out, [M, N], [N, 1], [1, 8]).scatter(
        tl.make_tensor_descriptor(x, [M, N], [N, 1], [1, 8]).gather(rows, 12), rows, 12
    )


add("descriptors", descriptors, floats(6, 20), zeros(6, 20), M=6, N=20)


@tw.jit
def read_modify_write(memory, old, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.atomic_add(memory + i, 5, mask=i < 50) + tl.atomic_max(memory + i, 60) + tl.atomic_min(memory + i, 70)
    b = tl.atomic_and(memory + i, 0x7E) + tl.atomic_or(memory + i, 1) + tl.atomic_xor(memory + i, i)
    c = tl.atomic_xchg(memory + i, i * 3) + tl.atomic_cas(memory + i, i * 3, i * 4)
    tl.atomic_store(memory + i, tl.atomic_load(memory + i) + 1)
    tl.store(old + i, tl.where(i < 50, a + b + c, 0))


add("atomics", read_modify_write, integers(), zeros(dtype=np.int32), N=N)


@tw.jit
def extremes_of_halves(x, memory, rows, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    tl.atomic_max(memory + i % 8, value, mask=i < 50)
    tl.atomic_min(memory + 8 + i % 8, value, sem="relaxed")
    target = tl.make_tensor_descriptor(rows, [N // 8, 8], [8, 1], [4, 8])
    for row in range(0, N // 8, 4):
        block = tl.reshape(value, (N // 8, 8))
        target.atomic_max([row, 0], tl.max(block, 0)[None, :] + tl.zeros((4, 8), tl.float16))
        target.atomic_add([row, 0], tl.full((4, 8), 2.0, tl.float16))


add(
    "atomics of halves", extremes_of_halves, floats().astype(np.float16), zeros(16, dtype=np.float16),
    zeros(8, 8, dtype=np.float16), N=N,
)  # fmt: skip


@tw.jit
def wait_for_others(flags, out, N: tl.constexpr):
    i = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.atomic_store(flags + i, i + 1)
    else:
        tl.store(out + i, tl.atomic_poll(flags + i, i + 1).to(tl.int32))


add("atomic_poll", wait_for_others, zeros(4, dtype=np.int32), zeros(4, dtype=np.int32), grid=(2,), N=4)


@tw.jit
def wait_with_limits(flags, out, LIMIT: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.atomic_poll(flags + i, 2, timeout_ns=LIMIT).to(tl.int32))
    tl.store(out + N, tl.atomic_poll(flags + 2, 5, timeout_ns=LIMIT + tl.program_id(0)).to(tl.int32))


def _some_arrive(flags: Array, out: Array) -> None:
    out[:] = [0, 1, 1, 0, 0]


add(
    "atomic_poll with a clock", wait_with_limits, np.array([1, 2, 2, 3], np.int32), zeros(5, dtype=np.int32),
    want=_some_arrive, LIMIT=2000, N=4,
)  # fmt: skip


# --- products -----------------------------------------------------------------------------------------------------


@tw.jit
def products(x, out, T: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tile = tl.load(x + at).to(T)
    total = tl.zeros((N, N), tl.float32)
    for _ in tl.range(2, num_stages=2, loop_unroll_factor=2, disallow_acc_multi_buffer=True):
        total = tl.dot(tile, tl.trans(tile), total, input_precision="ieee")
    tl.store(out + at, total)


for _type in (tl.float16, tl.bfloat16, tl.float32):
    add(f"dot {_type}", products, floats(32, 32), zeros(32, 32), T=_type, N=32, tolerance=1e-5)


@tw.jit
def scaled_products(x, scale, out, N: tl.constexpr):
    row, at = tl.arange(0, N), tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    codes, scales = tl.load(x + at).to(tl.uint8), tl.load(scale + row[:, None] + tl.arange(0, N // 32)[None, :])
    total = tl.dot_scaled(codes, scales.to(tl.uint8), "e5m2", tl.trans(codes), scales.to(tl.uint8), "e5m2")
    tl.store(out + at, total)


add("dot_scaled", scaled_products, integers(32, 32) % 64, 120 + integers(33) % 8, zeros(32, 32), N=32, tolerance=1e-5)


# --- numbers ------------------------------------------------------------------------------------------------------


@tw.jit
def of_one(x, out, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, F(tl.load(x + i)))


for _function in (
    tl.math.abs, tl.math.ceil, tl.math.cos, tl.math.erf, tl.math.exp, tl.math.exp2, tl.math.floor, tl.math.log,
    tl.math.log2, tl.math.rsqrt, tl.math.sin, tl.math.sqrt, tl.math.sqrt_rn, tl.sigmoid, tl.cumprod,
    tl.cumsum, tl.softmax, tl.uint_to_uniform_float,
):  # fmt: skip
    _unsigned = _function is tl.uint_to_uniform_float
    _x = integers().astype(np.uint32) << 24 if _unsigned else floats() / (3 if _function is tl.cumprod else 1)
    add(f"{_function.__name__} of one", of_one, _x, zeros(), F=_function, N=N, tolerance=2e-5)


@tw.jit
def of_two(x, y, out, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, F(tl.load(x + i), tl.load(y + i)))


for _function in (
    tl.math.div_rn, tl.math.fdiv, tl.math.maximum, tl.math.minimum, tl.add, tl.sub, tl.mul
):  # fmt: skip
    add(
        f"{_function.__name__} of two",
        of_two,
        floats(),
        floats()[::-1].copy(),
        zeros(),
        F=_function,
        N=N,
        tolerance=1e-6,
    )
for _function in (tl.standard.cdiv, tl.math.umulhi):
    _integral = [integers().astype(np.uint32) << 20, integers().astype(np.uint32)]
    add(f"{_function.__name__} of two", of_two, *_integral, zeros(dtype=np.uint32), F=_function, N=N)


@tw.jit
def flags(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    tl.store(out + i, tl.logical_or(tl.logical_and(value > 20, value < 60), value == 70).to(tl.int32))


add("flags", flags, integers(), zeros(dtype=np.int32), N=N)


@tw.jit
def of_three(x, y, z, out, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, F(tl.load(x + i), tl.load(y + i), tl.load(z + i)))


for _function in (tl.math.fma, tl.math.clamp):
    add(f"{_function.__name__} of three", of_three, floats(), floats() / 2, floats() + 1, zeros(), F=_function, N=N)


@tw.jit
def plus(a, b):
    return a + b


@tw.jit
def reductions(x, n, out, whole, N: tl.constexpr):
    i = tl.arange(0, N)
    value, number = tl.load(x + i), tl.load(n + i)
    tl.store(out, tl.sum(value))
    tl.store(out + 1, tl.max(value))
    tl.store(out + 2, tl.min(value))
    tl.store(out + 3, tl.reduce(value, 0, plus))
    tl.store(whole, tl.argmax(value, 0))
    tl.store(whole + 1, tl.argmin(value, 0))
    tl.store(whole + 2, tl.xor_sum(number))
    tl.store(whole + 3, tl.reduce_or(number > 98, 0).to(tl.int32))


add("reductions", reductions, floats(), integers(), zeros(4), zeros(4, dtype=np.int32), N=N, tolerance=1e-6)


@tw.jit
def sorting(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    tl.store(out + i, tl.associative_scan(value, 0, plus))
    tl.store(out + N + i, tl.sort(value))
    # Half up, half down: what a bitonic merge takes.
    tl.store(out + 2 * N + i, tl.bitonic_merge(tl.where(i < N // 2, i, 2 * N - i)))
    tl.store(out + 3 * N + tl.arange(0, 8), tl.topk(value, 8))


add("sorting", sorting, integers(), zeros(3 * N + 8, dtype=np.int32), N=N)


@tw.jit
def random_numbers(out, words, SEED: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.rand(SEED, i) + tl.randn(SEED, i))
    a, b, c, d = tl.rand4x(SEED, i)
    tl.store(out + N + i, a + b + c + d)
    a, b, c, d = tl.randn4x(SEED, i)
    tl.store(out + 2 * N + i, a + b + c + d)
    a, b = tl.pair_uniform_to_normal(tl.rand(SEED, i), tl.rand(SEED, i + N))
    tl.store(out + 3 * N + i, a + b)
    a, b, c, d = tl.randint4x(SEED, i)
    tl.store(words + i, (a ^ b ^ c ^ d ^ tl.randint(SEED, i)).to(tl.int32, bitcast=True))
    zero = (i * 0).to(tl.uint32)
    a, b, c, d = tl.philox(SEED, i.to(tl.uint32), zero, zero, zero)
    e, f, g, h = tl.random.philox_impl(a, b, c, d, zero, zero)
    tl.store(words + N + i, (e ^ f ^ g ^ h).to(tl.int32, bitcast=True))


add("random", random_numbers, zeros(4 * N), zeros(2 * N, dtype=np.int32), SEED=7, N=N, tolerance=1e-4)


# --- loops, hints, functions ---------------------------------------------------------------------------------------


@tw.jit
def loops(x, out, N: tl.constexpr):
    i, total, left = tl.arange(0, N), tl.zeros((N,), tl.int32), tl.load(x)
    for k in tl.range(0, left, 2, flatten=True, warp_specialize=True):
        total += k
        if k > 40:
            break
    for k in tl.static_range(3):
        total += k
    while tl.condition(left > 0):
        left -= 9
    at = tl.max_constancy(tl.max_contiguous(tl.multiple_of(i, 64), 64), 1)
    tl.assume(left <= 0)
    tl.debug_barrier()
    tl.store(out + at, total + left)


add("loops", loops, integers(), zeros(dtype=np.int32), N=N)


@tl.constexpr_function
def twice(n):
    return n * 2


@tl.aggregate
class Line:
    slope: tl.tensor
    start: tl.tensor

    def at(self, x):
        return self.slope * x + self.start


@tl.must_use_result
@tw.jit(noinline=True)
def collatz(x):
    steps = x * 0
    while x != 1:
        x = x // 2 if x % 2 == 0 else 3 * x + 1
        steps += 1
    return steps


@tw.jit
def functions(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    line = tl.aggregate_replace(Line(value, value + 1), start=value * twice(3))
    tl.store(out + i, line.at(i) + tl.map_elementwise(collatz, value) + collatz(tl.load(x)))


add("functions", functions, integers() % 8 + 1, zeros(dtype=np.int32), N=N)


@tl.core.builtin
def half_of(value, _semantic=None):
    return tl.mul(value, 0.5, _semantic=_semantic)


@tl.core.extern
def hyperbolic(value, _semantic=None):
    table = {(tl.float32,): ("__nv_tanhf", tl.float32)}
    return tl.core.extern_elementwise("", "", [value], table, is_pure=True, _semantic=_semantic)


@tw.jit
def extensions(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    value = half_of(tl.load(x + i))
    tl.store(out + i, hyperbolic(value) + tl.extra.libdevice.tanh(value) - tl.extra.cuda.libdevice.tanh(value))


add("extern functions", extensions, floats(), zeros(), N=N, tolerance=1e-6)


@tw.jit
def target_questions(out, MAJOR: tl.constexpr):
    tl.static_assert(tl.target_info.current_target().backend == "cuda" and tl.target_info.is_cuda())
    tl.static_assert(tl.target_info.cuda_capability_geq(8, 0) and not tl.target_info.cuda_capability_geq(99))
    tl.static_assert(not tl.target_info.is_hip() and not tl.target_info.is_hip_cdna3())
    tl.static_assert(not tl.target_info.is_hip_cdna4() and not tl.target_info.is_hip_gfx1250())
    tl.static_print("compiled for", tl.target_info.current_target().arch)
    tl.store(out, 1)


def _one(out: Array) -> None:
    out[:] = 1


add("target_info", target_questions, zeros(1, dtype=np.int32), want=_one, MAJOR=8)


@tw.jit
def debugging(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    tl.device_assert(value > 0, "positive", mask=i < 9)
    tl.device_print("first", tl.load(x))
    tl.store(out + i, value)


add("debugging", debugging, integers(), zeros(dtype=np.int32), N=N, options={"debug": True})


# --- what only a GPU has ---------------------------------------------------------------------------------------------


@tw.jit
def assembly(x, y, out, small, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    low, high = tl.inline_asm_elementwise(
        "mul.lo.s32 $0, $2, $3; add.s32 $1, $2, $3;", "=&r,=r,r,r", [a, b], (tl.int32, tl.int32), True, 1
    )
    tl.store(out + i, low - high)
    packed = tl.inline_asm_elementwise(
        "xor.b32 $0, $1, $2;", "=r,r,r", [a.to(tl.int8), b.to(tl.int8)], tl.int8, True, 4
    )
    tl.store(small + i, packed)
    # Not pure: it must run although nobody looks at what it gives.
    tl.inline_asm_elementwise("st.global.u32 [$1], 7; mov.u32 $0, 0;", "=r,l", [out + N], tl.int32, False, 1)


def _assembled(x: Array, y: Array, out: Array, small: Array) -> None:
    out[:-1], small[:], out[-1] = x * y - (x + y), (x ^ y).astype(np.int8), 7


add(
    "inline assembly", assembly, integers(), integers()[::-1].copy(), zeros(N + 1, dtype=np.int32),
    zeros(dtype=np.int8), want=_assembled, N=N,
)  # fmt: skip


@tw.jit
def machine(out, small):
    tl.store(out, tl.extra.cuda.num_warps())
    tl.store(out + 1, tl.extra.cuda.num_threads())
    tl.store(out + 2, (tl.extra.cuda.smid() < 1024).to(tl.int64))
    before = tl.extra.cuda.globaltimer()
    tl.debug_barrier()
    tl.store(out + 3, (tl.extra.cuda.globaltimer() >= before).to(tl.int64))
    value = tl.arange(0, 16) * 0.1
    code = tl.extra.cuda.convert_custom_float8_sm80(value, tl.float8e4b15)
    tl.store(small + tl.arange(0, 16), tl.extra.cuda.convert_custom_float8_sm70(code, tl.float32))


def _measured(out: Array, small: Array) -> None:
    out[:] = 2, 64, 1, 1
    tenths = np.arange(16) * np.float32(0.1)
    small[:] = from_memory(to_memory(tenths, tl.float8e4b15), tl.float8e4b15)


add("machine", machine, zeros(4, dtype=np.int64), zeros(16), want=_measured, options={"num_warps": 2})


@tw.jit
def dependent_launch(out):
    tl.extra.cuda.gdc_wait()
    tl.store(out, 1)
    tl.extra.cuda.gdc_launch_dependents()


add("dependent launch", dependent_launch, zeros(1, dtype=np.int32), want=_one, least=90)
