"""Default configurations follow from shapes, types and the machine: those of an H200 and of a CPU, on any machine."""

from __future__ import annotations

import random

import pytest
import torch

from tilewright import hl
from tilewright.hl.tune import spec
from tilewright.hl.tune.machine import Machine

H200, CPU = Machine("cuda", 132, 227 << 10), Machine("cpu", 2, 1 << 20)


def product(x, y):
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype)
    for tile_m, tile_n in hl.tile(out.shape):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


def attention(q, k, v):
    out = torch.empty_like(q)
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        acc = hl.zeros([tile_b, tile_m, q.size(2)])
        rows = q[tile_b, tile_m, :]
        for tile_n in hl.tile(k.size(1)):
            scores = torch.bmm(rows, k[tile_b, tile_n, :].transpose(1, 2))
            acc = torch.baddbmm(acc, scores.sigmoid() * 0.5, v[tile_b, tile_n, :])
        out[tile_b, tile_m, :] = acc
    return out


def split(x, y):
    out = torch.zeros([x.size(0), y.size(1)])
    part = hl.register_block_size(64, 4096)
    for tile_m, tile_n, outer in hl.tile([*out.shape, x.size(1)], block_size=[None, None, part]):
        acc = hl.zeros([tile_m, tile_n])
        for inner in hl.tile(outer.begin, outer.end):
            acc = torch.addmm(acc, x[tile_m, inner], y[inner, tile_n])
        hl.atomic_add(out, [tile_m, tile_n], acc)
    return out


def grouped(x, weights, offsets):
    out = torch.empty([x.size(0), weights.size(2)])
    for group in hl.grid(weights.size(0)):
        begin, end = offsets[group], offsets[group + 1]
        for tile_m in hl.tile(begin, end):
            for tile_n in hl.tile(weights.size(2)):
                acc = hl.zeros([tile_m, tile_n])
                for tile_k in hl.tile(x.size(1)):
                    acc = torch.addmm(acc, x[tile_m, tile_k], weights[group, tile_k, tile_n])
                out[tile_m, tile_n] = acc
    return out


def online(x):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows])
        for columns in hl.tile(x.size(1)):
            total = total + x[rows, columns].sum(1)
        for again in hl.tile(x.size(1)):
            total = total * x[rows, again].sum(1)
        out[rows] = total
    return out


def columns_first(x):
    out = torch.empty([x.size(2)])
    for tile in hl.tile(1):
        for columns in hl.tile(x.size(2)):
            total = hl.zeros([columns])
            for rows in hl.tile(x.size(1)):
                total = total + x[0, rows, columns].sum(0)
            out[columns] = total
    return out


def default(monkeypatch, machine, function, *shapes, dtype=torch.bfloat16):
    monkeypatch.setattr(spec, "machine_of", lambda device: machine)
    args = tuple(torch.empty(shape, dtype=dtype) for shape in shapes)
    return hl.kernel(function).bind(args).config_spec.default_config()


@pytest.mark.parametrize(
    ("shapes", "dtype", "blocks", "warps", "group"),
    [
        (((4096, 4096), (4096, 4096)), torch.bfloat16, [128, 256, 64], 8, 8),
        (((1024, 1024), (1024, 1024)), torch.bfloat16, [64, 128, 128], 4, 1),  # one round of programs
        (((512, 512), (512, 512)), torch.bfloat16, [64, 32, 128], 4, 1),
        (((4096, 4096), (4096, 4096)), torch.float32, [128, 128, 32], 8, 8),
    ],
)
def test_products_on_a_gpu(monkeypatch, shapes, dtype, blocks, warps, group):
    found = default(monkeypatch, H200, product, *shapes, dtype=dtype)
    assert (found["block_sizes"], found["num_warps"], found["l2_groupings"]) == (blocks, warps, [group])
    m, n, k = blocks
    assert (m + n) * k * dtype.itemsize * found["num_stages"] <= H200.cache and found["num_stages"] >= 3


@pytest.mark.parametrize(
    ("sides", "depth", "stages"),
    [
        ((64, 4096, 4096), 128, 8),
        ((1408, 4096, 1408), 64, 7),  # of four deeper steps there is no room
        ((2048, 2048, 2048), 64, 4),
        ((64, 100, 4096), 64, 8),  # there are no four deeper steps
        ((4096, 4096, 4096), 64, 4),  # two rounds of programs
    ],
)
def test_programs_with_a_processor_each_load_as_far_ahead_as_memory_holds(monkeypatch, sides, depth, stages):
    m, k, n = sides
    found = default(monkeypatch, H200, product, (m, k), (k, n))
    assert (found["block_sizes"][2], found["num_stages"]) == (depth, stages)
    assert stages * 2 * depth * sum(found["block_sizes"][:2]) <= H200.cache


def test_rows_of_one_batch_follow_each_other(monkeypatch):
    found = default(monkeypatch, H200, attention, *[(64, 2048, 64)] * 3)
    assert found["loop_orders"] == [[1, 0]]
    assert default(monkeypatch, CPU, attention, *[(8, 512, 64)] * 3, dtype=torch.float32)["loop_orders"] == [[1, 0]]


@pytest.mark.parametrize(
    ("width", "dtype", "blocks", "warps", "stages"),
    [
        (64, torch.float16, [1, 128, 64], 4, 3),  # three programs, as in the registers
        (64, torch.float32, [1, 128, 64], 4, 2),  # two: a pipeline is worth more than a third one
        (128, torch.float16, [1, 128, 128], 8, 3),
    ],
)
def test_programs_hide_work_between_products_where_they_fit(monkeypatch, width, dtype, blocks, warps, stages):
    found = default(monkeypatch, H200, attention, *[(64, 2048, width)] * 3, dtype=dtype)
    assert (found["block_sizes"], found["num_warps"], found["num_stages"]) == (blocks, warps, stages)


def of_keys(q, k, v, up):
    """Gradients of keys and values of an attention: four products a pass, which loads two tiles anew."""
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    for tile_b, tile_n in hl.tile([k.size(0), k.size(1)]):
        sum_k, sum_v = (hl.zeros([tile_b, tile_n, k.size(2)]) for _ in range(2))
        for tile_m in hl.tile(q.size(1)):
            queries, ups = q[tile_b, tile_m, :], up[tile_b, tile_m, :]
            shares = torch.bmm(queries, k[tile_b, tile_n, :].transpose(1, 2)).sigmoid()
            parts = torch.bmm(ups, v[tile_b, tile_n, :].transpose(1, 2)) * shares
            sum_v = torch.baddbmm(sum_v, shares.transpose(1, 2), ups)
            sum_k = torch.baddbmm(sum_k, parts.transpose(1, 2), queries)
        dk[tile_b, tile_n, :], dv[tile_b, tile_n, :] = sum_k, sum_v
    return dk, dv


@pytest.mark.parametrize("width", [64, 128])
def test_products_that_need_others_are_made_by_few_warps(monkeypatch, width):
    found = default(monkeypatch, H200, of_keys, *[(64, 2048, width)] * 4)
    assert (found["block_sizes"], found["num_warps"], found["num_stages"]) == ([1, 64, 64], 4, 2)


def of_queries(q, k, v, up):
    """Gradient of queries of an attention: the third product needs the other two, and goes on with the only sum."""
    dq = torch.empty_like(q)
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        queries, ups = q[tile_b, tile_m, :], up[tile_b, tile_m, :]
        total = hl.zeros([tile_b, tile_m, q.size(2)])
        for tile_n in hl.tile(k.size(1)):
            keys = k[tile_b, tile_n, :]
            shares = torch.bmm(queries, keys.transpose(1, 2)).sigmoid()
            parts = torch.bmm(ups, v[tile_b, tile_n, :].transpose(1, 2)) * shares
            total = torch.baddbmm(total, parts.to(keys.dtype), keys)
        dq[tile_b, tile_m, :] = total
    return dq


@pytest.mark.parametrize(("width", "rows", "warps"), [(64, 64, 4), (128, 128, 8)])
def test_eight_warps_start_products_ahead_where_registers_hold_them(monkeypatch, width, rows, warps):
    found = default(monkeypatch, H200, of_queries, *[(64, 2048, width)] * 4)
    assert (found["block_sizes"], found["num_warps"]) == ([1, rows, 64], warps)


def both_gradients(q, k, v, up):
    """The kernels of a gradient, one after the other."""
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        queries, ups = q[tile_b, tile_m, :], up[tile_b, tile_m, :]
        total = hl.zeros([tile_b, tile_m, q.size(2)])
        for tile_n in hl.tile(k.size(1)):
            keys = k[tile_b, tile_n, :]
            shares = torch.bmm(queries, keys.transpose(1, 2)).sigmoid()
            parts = torch.bmm(ups, v[tile_b, tile_n, :].transpose(1, 2)) * shares
            total = torch.baddbmm(total, parts.to(keys.dtype), keys)
        dq[tile_b, tile_m, :] = total
    for tile_b, tile_n in hl.tile([k.size(0), k.size(1)]):
        sum_k, sum_v = (hl.zeros([tile_b, tile_n, k.size(2)]) for _ in range(2))
        for tile_m in hl.tile(q.size(1)):
            queries, ups = q[tile_b, tile_m, :], up[tile_b, tile_m, :]
            shares = torch.bmm(queries, k[tile_b, tile_n, :].transpose(1, 2)).sigmoid()
            parts = torch.bmm(ups, v[tile_b, tile_n, :].transpose(1, 2)) * shares
            sum_v = torch.baddbmm(sum_v, shares.transpose(1, 2), ups)
            sum_k = torch.baddbmm(sum_k, parts.transpose(1, 2), queries)
        dk[tile_b, tile_n, :], dv[tile_b, tile_n, :] = sum_k, sum_v
    return dq, dk, dv


def test_each_kernel_has_warps_of_its_own(monkeypatch):
    found = default(monkeypatch, H200, both_gradients, *[(64, 2048, 128)] * 4)
    assert (found["block_sizes"], found["num_warps"]) == ([1, 128, 64, 1, 64, 64], [8, 4])


def test_warps_follow_the_tiles_that_are_given(monkeypatch):
    monkeypatch.setattr(spec, "machine_of", lambda device: H200)
    args = tuple(torch.empty(64, 2048, 128, dtype=torch.bfloat16) for _ in range(4))
    choices = hl.kernel(both_gradients).bind(args).config_spec
    assert choices.normalize({"block_sizes": [1, 64, 64, 1, 64, 64]})["num_warps"] == 4


def sums_of_columns(x):
    total = torch.zeros([x.size(1)])
    for rows in hl.tile(x.size(0)):
        hl.atomic_add(total, [slice(None)], x[rows, :].sum(0))
    return total


def test_programs_that_update_the_same_addresses_are_few(monkeypatch):
    found = default(monkeypatch, H200, sums_of_columns, (8192, 1024), dtype=torch.float32)
    assert found["block_sizes"] == [16] and found["num_warps"] == 16
    narrow, wide, long = ((4096, 64), [32]), ((512, 1024), [8]), ((512, 2048), [1])
    for shape, blocks in (narrow, wide, long):  # a thread of a CPU keeps the sums over all of its programs
        assert default(monkeypatch, CPU, sums_of_columns, shape)["block_sizes"] == blocks


def test_searches_try_what_a_gpu_can_hold(monkeypatch):
    monkeypatch.setattr(spec, "machine_of", lambda device: H200)
    choices = hl.kernel(product).bind((torch.empty(64, 512), torch.empty(512, 64))).config_spec
    found = [choices.random(random.Random(seed)) for seed in range(60)]
    found += choices.neighbors(choices.normalize({"block_sizes": [16, 16, 64]}))
    unrolled = [512 // config["block_sizes"][2] for config in found if config["static_ranges"][0]]
    assert len(unrolled) > 5 and max(unrolled) <= 8
    tiles = [choices.facts.largest_tiles(config)[0][0] / (32 * config["num_warps"]) for config in found]
    assert 16 < max(tiles) <= 256  # elements a thread


@pytest.mark.parametrize(("machine", "part"), [(H200, 1024), (CPU, 4096)])
def test_parts_of_a_sum_are_as_long_as_programs_are_enough(monkeypatch, machine, part):
    found = default(monkeypatch, machine, split, (512, 65536), (65536, 512))
    assert found["block_sizes"][0] == part


def test_tiles_of_small_products_leave_work_for_all_threads(monkeypatch):
    machine = Machine("cpu", 16, 1 << 20)
    assert default(monkeypatch, machine, product, (256, 64), (64, 256))["block_sizes"][:2] == [64, 64]


def test_loops_behind_each_other_have_sizes_of_their_own(monkeypatch):
    assert default(monkeypatch, CPU, online, (512, 4096), dtype=torch.float32)["block_sizes"] == [16, 512, 512]


def test_inner_loops_along_the_memory_are_the_longest(monkeypatch):
    assert default(monkeypatch, CPU, columns_first, (1, 4096, 4096), dtype=torch.float32)["block_sizes"] == [1, 512, 16]


@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, 4), (torch.bfloat16, 32)])
def test_tiles_of_a_range_that_is_read_are_low_on_a_cpu(monkeypatch, dtype, rows):
    monkeypatch.setattr(spec, "machine_of", lambda device: CPU)
    args = (torch.empty(400, 256, dtype=dtype), torch.empty(2, 256, 256, dtype=dtype), torch.tensor([0, 10, 400]))
    assert hl.kernel(grouped).bind(args).config_spec.default_config()["block_sizes"] == [rows, 128, 64]


def sums_of_ranges(x, offsets):
    out = torch.empty(offsets.size(0) - 1, x.size(1))
    for part in hl.grid(offsets.size(0) - 1):
        for columns in hl.tile(x.size(1)):
            total = hl.zeros([columns])
            for rows in hl.tile(offsets[part], offsets[part + 1]):
                total = total + x[rows, columns].sum(0)
            out[part, columns] = total
    return out


@pytest.mark.parametrize(
    ("width", "strides", "blocks"), [(64, (64, 1), [64, 16]), (8, (8, 1), [8, 128]), (64, (1, 400), [16, 256])]
)
def test_tiles_of_a_range_that_is_read_are_short(monkeypatch, width, strides, blocks):
    monkeypatch.setattr(spec, "machine_of", lambda device: CPU)
    args = (torch.empty_strided((400, width), strides), torch.tensor([0, 10, 400]))
    assert hl.kernel(sums_of_ranges).bind(args).config_spec.default_config()["block_sizes"] == blocks


def turned_pairs(x, angles):
    out, half = torch.empty_like(x), x.size(1) // 2
    for rows in hl.tile(x.size(0)):
        left, right, angle = x[rows, :half], x[rows, half:], angles[rows, :]
        out[rows, :half] = left * angle - right
        out[rows, half:] = right * angle + left
    return out


def test_tiles_that_several_stores_share_fit_the_first_cache_of_a_cpu(monkeypatch):
    """Three loaded tiles, each where it was and in scratch: a sixth of the rows, as a power of two."""
    args = (torch.empty(1 << 14, 128), torch.empty(1 << 14, 64))
    monkeypatch.setattr(spec, "machine_of", lambda device: CPU)
    assert hl.kernel(turned_pairs).bind(args).config_spec.default_config()["block_sizes"] == [16]


def shifted(x, bias):
    out = torch.empty_like(x)
    for rows, columns in hl.tile([x.size(0), x.size(1)], block_size=[64, None]):
        out[rows, columns] = x[rows, columns] + bias[columns]
    return out


def test_tiles_have_room_for_blocks_that_the_program_chose(monkeypatch):
    monkeypatch.setattr(spec, "machine_of", lambda device: CPU)
    for static in (True, False):
        bound = hl.kernel(shifted, static_shapes=static).bind((torch.empty(128, 1 << 14), torch.empty(1 << 14)))
        assert bound.config_spec.default_config()["block_sizes"] == [1024]


def one_step_after_another(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(2)):
        for head in hl.grid(x.size(0)):
            state = hl.zeros([tile])
            for step in hl.grid(x.size(1)):
                state = state * 0.5 + x[head, step, tile]
                out[head, step, tile] = state
    return out


def rows_of_a_matrix(x):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.shape):
        out[rows, columns] = x[rows, columns].cumsum(0)
    return out


def test_a_gpu_has_as_many_programs_as_it_holds(monkeypatch):
    found = default(monkeypatch, H200, one_step_after_another, (8, 64, 1024), dtype=torch.float32)
    assert (found["block_sizes"], found["num_warps"]) == ([32], 1)  # and not fewer elements than threads
    found = default(monkeypatch, H200, rows_of_a_matrix, (32768, 64), dtype=torch.float32)
    assert (found["block_sizes"], found["num_warps"]) == ([8, 64], 1)  # 16 elements a thread


def summed_in_blocks(x):
    out = torch.empty([x.size(0)], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        state = hl.zeros([rows])
        for columns in hl.tile(x.size(1), block_size=512):
            state = torch.tanh(state + x[rows, columns].sum(1))
        out[rows] = state
    return out


def test_tiles_have_room_for_blocks_of_inner_loops(monkeypatch):
    monkeypatch.setattr(spec, "machine_of", lambda device: CPU)
    for static in (True, False):
        bound = hl.kernel(summed_in_blocks, static_shapes=static).bind((torch.empty(1 << 16, 1024),))
        assert bound.config_spec.default_config()["block_sizes"] == [16]


def test_tiles_beside_a_block_size_of_the_program_are_smaller():
    def least(x):
        out = torch.empty_like(x)
        for i, j in hl.tile(x.size(), block_size=[None, 64]):
            out[i, j] = hl.associative_scan(torch.minimum, x[i, j], 1, reverse=True)
        return out

    x = torch.randn(9, 37)
    for static in (True, False):
        kernel = hl.kernel(least, static_shapes=static)
        assert torch.equal(kernel(x), x.flip(1).cummin(1).values.flip(1))
        (rows,) = kernel.bind((x,)).default_config()["block_sizes"]
        assert rows * 64 <= 1 << 17  # as many elements as where the program gives none


def columns_summed(x):
    out = torch.empty([x.size(1)], dtype=x.dtype)
    for tile in hl.tile(x.size(1)):
        out[tile] = x[:, tile].sum(0)
    return out


def rows_summed(x):
    out = torch.empty([x.size(0)], dtype=x.dtype)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].sum(1)
    return out


@pytest.mark.parametrize(("threads", "columns"), [(1, 64), (2, 64), (64, 16)])
def test_programs_on_a_cpu_take_whole_lines_of_the_rows_of_which_they_have_a_part(monkeypatch, threads, columns):
    monkeypatch.setattr(spec, "machine_of", lambda device: Machine("cpu", threads, 1 << 20))
    x = torch.empty(4000, 2000)
    assert hl.kernel(columns_summed).bind((x,)).config_spec.default_config()["block_sizes"] == [columns]
    assert hl.kernel(rows_summed).bind((x.t(),)).config_spec.default_config()["block_sizes"] == [columns]
    assert hl.kernel(rows_summed).bind((x,)).config_spec.default_config()["block_sizes"] == [4]


def sums_of_columns_and_rows(x):
    total, out = torch.zeros([x.size(1)]), torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :] - x[rows, :].mean(-1, keepdim=True)
        hl.atomic_add(total, [slice(None)], x[rows, :].sum(0))
    return total, out


def test_rows_that_are_summed_and_stored_are_one_loop(monkeypatch):
    for shape, blocks in (((1024, 1024), [32]), ((1024, 64), [32]), ((512, 2048), [1])):
        assert default(monkeypatch, CPU, sums_of_columns_and_rows, shape)["block_sizes"] == blocks
