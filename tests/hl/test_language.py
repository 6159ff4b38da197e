"""Functions of the language beside loops, loads and products."""

from __future__ import annotations

import pytest
import torch

import tilewright
import tilewright.language as tl
from tilewright import hl
from tilewright.hl import exc

close = torch.testing.assert_close
FACTOR = tl.constexpr(3)


def larger(left_value, left_index, right_value, right_index):
    keep = (left_value > right_value) | ((left_value == right_value) & (left_index < right_index))
    return torch.where(keep, left_value, right_value), torch.where(keep, left_index, right_index)


def both(left, right):
    return left[0] + right[0], torch.maximum(left[1], right[1])


@hl.kernel(config=hl.Config(block_sizes=[4, 4, 16]))
def reductions(x):
    m, n = x.size()
    values, sums, again = x.new_empty([m]), x.new_empty([m]), x.new_empty([m])
    largest, places = x.new_empty([m, 1]), torch.empty([m], dtype=torch.int64, device=x.device)
    running, behind, parts, steps = (torch.empty_like(x) for _ in range(4))
    for tile_m in hl.tile(m):
        row = x[tile_m, :]
        lane = hl.arange(n)[None, :].expand(row.shape).to(torch.int64)
        values[tile_m], places[tile_m] = hl.reduce(larger, (row, lane), dim=-1, other=(float("-inf"), 0))
        sums[tile_m], _ = hl.reduce(both, (row, row), dim=1)
        _, largest[tile_m, :] = hl.reduce(both, (row, row), dim=1, keep_dims=True)
        again[tile_m] = hl.reduce(lambda a, b: a + b, row, 1)
        running[tile_m, :] = hl.associative_scan(lambda a, b: a + b, row, 1)
        behind[tile_m, :] = hl.cumsum(row, 1, reverse=True)
    for tile_m in hl.tile(m):
        for tile_n in hl.tile(n):
            parts[tile_m, tile_n] = hl.cumprod(x[tile_m, tile_n], 1, reverse=True)
            steps[tile_m, tile_n] = hl.associative_scan(torch.minimum, x[tile_m, tile_n].abs() + 1, 1, reverse=True)
    return values, places, sums, largest, again, running, behind, parts, steps


def test_functions_that_combine():
    x = torch.randn(10, 37)
    values, places, sums, largest, again, running, behind, parts, steps = reductions(x)
    close(values, x.amax(1))
    assert torch.equal(places, x.argmax(1))
    close(sums, x.sum(1))
    close(largest, x.amax(1, True))
    close(again, x.sum(1))
    close(running, x.cumsum(1))
    close(behind, x.flip(1).cumsum(1).flip(1))
    close(parts, torch.cat([part.flip(1).cumprod(1).flip(1) for part in x.split(16, 1)], 1))
    close(steps, torch.cat([(part.abs() + 1).flip(1).cummin(1)[0].flip(1) for part in x.split(16, 1)], 1))


def test_a_combine_function_must_not_use_tiles():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            part = x[tile]
            total = part.sum()
            out[tile] = hl.associative_scan(lambda a, b: a + b * total, part, 0)
        return out

    with pytest.raises(exc.InvalidAPIUsage, match="uses a value of the kernel"):
        kernel(torch.randn(10))


@tilewright.jit
def doubled(x):
    return x * 2


@tilewright.jit
def scaled(x, y):
    return doubled(x) * y + FACTOR


@hl.kernel(config=hl.Config(block_sizes=[16]))
def own_text(x):
    lines, named, called, text, pairs = (torch.empty_like(x) for _ in range(5))
    hl.pdl_wait()
    for tile in hl.tile(x.size(0)):
        part = x[tile]
        lines[tile] = hl.inline_triton(
            """
            twice = {0} * 2
            twice + {1}
            """,
            [part, 3],
            part,
        )
        named[tile] = hl.inline_triton("{u} - {first}", {"u": part, "first": tile.begin}, part)
        called[tile] = hl.triton_kernel(scaled, [part, part], part)
        text[tile] = hl.triton_kernel("def plus(x): return x + 1", {"x": part}, part)
        low, high = hl.split(hl.join(part, part + 1))
        pairs[tile] = hl.subscript(low * high, [None, slice(None)]).squeeze(0)
    hl.pdl_launch_dependents()
    return lines, named, called, text, pairs


def test_text_of_the_block_language():
    x = torch.randn(20)
    lines, named, called, text, pairs = own_text(x)
    close(lines, x * 2 + 3)
    close(named, x - torch.arange(20) // 16 * 16)
    close(called, x * 2 * x + 3)
    close(text, x + 1)
    close(pairs, x * (x + 1))


def test_prints(capfd):
    @hl.kernel(config=hl.Config(block_sizes=[4]))
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            hl.device_print("part", x[tile])
            print("first is", tile.begin)
            out[tile] = x[tile]
        return out

    kernel(torch.full([4], 2.5))
    written = capfd.readouterr().out
    assert written.count("part: 2.5") == 4 and "first is: 0" in written


def test_stacked_tensors():
    @hl.kernel(config=hl.Config(block_sizes=[4, 16]))
    def kernel(like, pointers):
        out = torch.empty([pointers.size(0), like.size(0)])
        for tile_p in hl.tile(pointers.size(0)):
            stack = hl.stacktensor_like(like, pointers[tile_p])
            for tile_n in hl.tile(like.size(0)):
                out[tile_p, tile_n] = stack[tile_n]
                stack[tile_n] = stack[tile_n] + 1
        return out

    parts = [torch.randn(33) for _ in range(7)]
    before = torch.stack(parts)
    for dtype in (torch.int64, torch.uint64):
        addresses = torch.tensor([part.data_ptr() for part in parts]).view(dtype)
        close(kernel(parts[0], addresses), before)
        before += 1
        close(torch.stack(parts), before)


def test_grids_with_steps():
    @hl.kernel
    def kernel(x):
        out = torch.zeros_like(x)
        for at in hl.grid(1, x.size(0), step=3):
            for inner in range(0, x.size(1), 2):
                out[at, inner] = x[at, inner]
            for inner in hl.grid(at, x.size(1), 4):
                out[at, inner] = inner
        return out

    x = torch.randn(9, 11)
    expected = torch.zeros_like(x)
    expected[1::3, ::2] = x[1::3, ::2]
    for at in range(1, 9, 3):
        expected[at, at::4] = torch.arange(at, 11, 4, dtype=torch.float32)
    close(kernel(x), expected)


def test_products_of_scaled_floats():
    @hl.kernel(config=hl.Config(block_sizes=[16, 16, 64]))
    def kernel(a, a_scale, b, b_scale):
        (m, k), n = a.size(), b.size(1)
        out = torch.empty([m, n])
        for tile_m, tile_n in hl.tile([m, n]):
            acc = hl.zeros([tile_m, tile_n])
            for tile_k in hl.tile(k, block_size=64):
                block = tile_k.id * 2
                left = a_scale[tile_m, block + hl.arange(2)]
                right = b_scale[tile_n, block + hl.arange(2)]
                acc = hl.dot_scaled(a[tile_m, tile_k], left, "e4m3", b[tile_k, tile_n], right, "e5m2", acc)
            out[tile_m, tile_n] = acc
        return out

    a, b = torch.randn(32, 128).to(torch.float8_e4m3fn), torch.randn(128, 48).to(torch.float8_e5m2)
    scales = [torch.randint(124, 131, (n, 4), dtype=torch.uint8) for n in (32, 48)]
    left, right = (torch.exp2(scale.float() - 127).repeat_interleave(32, 1) for scale in scales)
    kernel.configs[0] = hl.Config(block_sizes=[16, 16])
    close(kernel(a, scales[0], b, scales[1]), (a.float() * left) @ (b.float() * right.T), rtol=1e-3, atol=1e-3)


def test_assembly_is_passed_on():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = hl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x[tile]], dtype=torch.float32)
        return out

    code = kernel.bind((torch.randn(64),)).to_code()
    assert (
        "tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [" in code and "tl.float32, is_pure=True, pack=1)" in code
    )


def test_what_one_machine_cannot_do():
    for refused in (hl.make_async_remote_copy, hl.remote_barrier, hl.AsyncCopyDescriptor):
        with pytest.raises(exc.BackendUnsupported, match="torch.distributed"):
            refused()


def test_the_scan_of_torch():
    from torch._higher_order_ops.associative_scan import associative_scan

    @hl.kernel
    def kernel(x):
        out, most = torch.empty_like(x), torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = associative_scan(lambda a, b: a * b, x[rows, :], dim=1)
            both = (x[rows, :], x[rows, :] * 2)
            most[rows, :] = associative_scan(lambda a, b: (a[0] + b[0], torch.maximum(a[1], b[1])), both, 1)[1]
        return out, most

    x = torch.rand(5, 9) + 0.5
    out, most = kernel(x)
    torch.testing.assert_close(out, x.cumprod(1))
    torch.testing.assert_close(most, (x * 2).cummax(1).values)
    for mode in (hl.RefMode.EAGER, hl.RefMode.TILED):
        torch.testing.assert_close(kernel.bind((x,)).run_ref(x, mode=mode), (out, most))


def test_the_scan_of_torch_by_its_whole_name():
    higher = torch._higher_order_ops

    @hl.kernel
    def kernel(x):
        out, back = torch.empty_like(x), torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = torch._higher_order_ops.associative_scan(lambda a, b: a * b, x[rows, :], dim=1)
            back[rows, :] = higher.associative_scan(torch.add, x[rows, :], 1, reverse=True, combine_mode="generic")
        return out, back

    x = torch.rand(5, 9) + 0.5
    expected = x.cumprod(1), x.flip(1).cumsum(1).flip(1)
    torch.testing.assert_close(kernel(x), expected)
    for mode in (hl.RefMode.EAGER, hl.RefMode.TILED):
        torch.testing.assert_close(kernel.bind((x,)).run_ref(x, mode=mode), expected)


def test_the_scan_of_torch_in_a_function_says_what_to_write():
    from torch._higher_order_ops.associative_scan import associative_scan

    def running(value):
        return associative_scan(torch.add, value, 1)

    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = running(x[rows, :])
        return out

    with pytest.raises(hl.exc.TorchOpTracingError, match=r"call hl\.associative_scan"):
        kernel(torch.ones(3, 4))
