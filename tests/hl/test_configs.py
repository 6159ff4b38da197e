"""Configurations: any of a kernel's give one result, keys change what they are about, and wrong ones are refused."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

from tilewright import hl
from tilewright.hl.tune.keys import KEYS
from tilewright.hl.tune.machine import Machine


@hl.kernel
def softmax(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], dim=-1)
    return out


@hl.kernel
def layer_norm(x, weight, bias):
    out = torch.empty_like(x)
    means = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        out[rows, :] = F.layer_norm(x[rows, :], [x.size(1)], weight[:], bias[:], 1e-5)
        means[rows] = x[rows, :].mean(-1)
    return out, means


@hl.kernel
def arg_extremes(x):
    places = torch.empty([x.size(0)], dtype=torch.int64)
    flags = torch.empty([x.size(0)], dtype=torch.bool)
    for rows in hl.tile(x.size(0)):
        places[rows] = x[rows, :].argmax(-1)
        flags[rows] = (x[rows, :] > 2).any(-1)
    return places, flags


@hl.kernel
def biased(x, y, bias):
    out = torch.empty_like(x)
    for a, b, c in hl.tile(x.shape):
        out[a, b, c] = torch.tanh(x[a, b, c]) * y[a, b, c] + bias[a, b, c]
    return out


@hl.kernel
def product(x, y):
    m, k = x.size()
    out = torch.empty([m, y.size(1)], dtype=x.dtype)
    for tile_m, tile_n in hl.tile([m, y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.relu()
    return out


@hl.kernel
def sums(x):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows])
        for a, b in hl.tile(x.shape[1:]):
            total = total + x[rows, a, b].sum(-1).sum(-1)
        out[rows] = total
    return out


def _sizes(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


KERNELS = {
    "softmax": (softmax, lambda x: torch.softmax(x, -1), (_sizes(13, 100),)),
    "layer_norm": (
        layer_norm,
        lambda x, w, b: (F.layer_norm(x, [72], w, b), x.mean(-1)),
        (_sizes(9, 72), _sizes(72), _sizes(72)),
    ),
    "arg_extremes": (arg_extremes, lambda x: (x.argmax(-1), (x > 2).any(-1)), (_sizes(7, 90),)),
    "biased": (
        biased,
        lambda x, y, b: torch.tanh(x) * y + b,
        (_sizes(5, 6, 20), _sizes(5, 20, 6).mT, _sizes(1, 6, 20)),
    ),
    "product": (product, lambda x, y: (x @ y).relu(), (_sizes(40, 24), _sizes(24, 36))),
    "sums": (sums, lambda x: x.sum((1, 2)), (_sizes(6, 10, 12),)),
}


def check(name, config):
    kernel, reference, args = KERNELS[name]
    bound = kernel.bind(args)
    torch.testing.assert_close(bound.compile_config(config)(*args), reference(*args), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", KERNELS)
def test_random_configurations_give_one_result(name, seed):
    kernel, _, args = KERNELS[name]
    config = kernel.bind(args).config_spec.random(random.Random(seed))
    check(name, config)


@pytest.mark.parametrize("chunk", [16, 64])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "arg_extremes"])
def test_rolled_reductions(name, chunk):
    kernel, _, args = KERNELS[name]
    code = kernel.bind(args).to_code({"block_sizes": [4], "reduction_loops": [chunk]})
    assert "for offset_n in tl.range(" in code
    check(name, {"block_sizes": [4], "reduction_loops": [chunk]})


@pytest.mark.parametrize("pid", ["flat", "xyz", "persistent_blocked", "persistent_interleaved"])
@pytest.mark.parametrize("swapped", [False, True])
def test_grids(pid, swapped):
    """Every two of the kinds of grid, the orders and the groups meet."""
    order, group = [1, 0] if swapped else [0, 1], 1 + (swapped == pid.startswith("persistent"))
    check("product", {"block_sizes": [8, 16, 16], "pid_type": pid, "loop_orders": [order], "l2_groupings": [group]})


@pytest.mark.parametrize("form", ["block_ptr", "tensor_descriptor"])
@pytest.mark.parametrize("name", ["softmax", "biased", "product"])
def test_forms_of_access(name, form):
    kernel, _, args = KERNELS[name]
    blocks = {"softmax": [4], "biased": [2, 4, 8], "product": [16, 16, 16]}[name]
    code = kernel.bind(args).to_code({"block_sizes": blocks, "indexing": form})
    assert {"block_ptr": "tl.make_block_ptr(", "tensor_descriptor": "tl.make_tensor_descriptor("}[form] in code
    check(name, {"block_sizes": blocks, "indexing": form})


def test_flattened_loops_index_contiguous_tensors_by_the_count():
    kernel, _, args = KERNELS["biased"]
    config = {"block_sizes": [2, 4, 8], "flatten_loops": [True]}
    code = kernel.bind(args).to_code(config)
    assert "tl.load(x + index_a_b_c" in code and "// 20" in code
    check("biased", config)


def test_the_default_is_normal_and_survives_flattening():
    for kernel, _, args in KERNELS.values():
        spec = kernel.bind(args).config_spec
        default = spec.default_config()
        assert spec.normalize(default) == default == spec.unflatten(spec.flatten(default))
        config = spec.random(random.Random(5))
        assert spec.unflatten(spec.flatten(config)) == config
        assert all(near != config for near in spec.neighbors(config))


def test_neighbors_have_one_step_one_default_or_a_tile_that_is_as_large():
    _, _, args = KERNELS["product"]
    spec = product.bind(args).config_spec
    config = spec.normalize({"block_sizes": [8, 8, 8], "l2_groupings": [32]})
    near = {(*found["block_sizes"], found["l2_groupings"][0]) for found in spec.neighbors(config)}
    assert {(16, 8, 8, 32), (8, 4, 8, 32), (16, 4, 8, 32), (8, 4, 16, 32), (8, 8, 8, 16), (8, 8, 8, 1)} <= near
    assert (16, 4, 8, 16) not in near and (8, 8, 8, 4) not in near


def test_searches_on_a_gpu_take_tiles_of_products_that_its_units_take(monkeypatch):
    monkeypatch.setattr("tilewright.hl.tune.spec.machine_of", lambda device: Machine("cuda", 132, 227 << 10))
    _, _, args = KERNELS["product"]
    spec = hl.kernel(product.fn).bind(args).config_spec
    sizes = {size for seed in range(50) for size in spec.random(random.Random(seed))["block_sizes"]}
    extents = {1 << (side - 1).bit_length() for arg in args for side in arg.shape}
    assert min(sizes) >= min(16, *extents) and max(sizes) <= 256
    assert spec.normalize({"block_sizes": [8, 8, 8]})["block_sizes"] == [8, 8, 8]  # whoever wants others may


def test_what_changes_nothing_is_not_searched(monkeypatch):
    monkeypatch.setattr("tilewright.hl.tune.spec.machine_of", lambda device: Machine("cuda", 132, 227 << 10))
    _, _, args = KERNELS["product"]
    spec = hl.kernel(product.fn).bind(args).config_spec
    varied = {choice.key for choice in spec.choices if choice.searched}
    assert "range_unroll_factors" in varied and not {"range_multi_buffers", "range_flattens"} & varied
    flat = spec.normalize({"block_sizes": [8, 8, 8], "range_flattens": [True, True]})
    assert flat["range_flattens"][1] is True


def test_singular_names_and_single_values():
    _, _, args = KERNELS["product"]
    spec = product.bind(args).config_spec
    config = spec.normalize({"block_size": [8, 8, 8], "l2_grouping": 4, "loop_order": [1, 0], "num_warps": 8})
    assert (config["l2_groupings"], config["loop_orders"]) == ([4], [[1, 0]])
    assert "num_warps" not in config  # the CPU has none


@pytest.mark.parametrize("key", [name for name, key in KEYS.items() if not key.on("cpu")])
def test_keys_of_other_devices_are_accepted(key):
    _, _, args = KERNELS["product"]
    config = product.bind(args).config_spec.normalize({"block_sizes": [8, 8, 8], key: _example(key)})
    assert key not in config


def _example(key):
    if key.startswith("range_"):
        return [1] if "num" in key or "unroll" in key else [True]
    if "modifiers" in key:
        return [".cg"]
    return {"load_eviction_policies": ["first"], "num_warps": 2, "num_stages": 2, "maxnreg": 64}.get(key, 1)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"block_size": [8, 8, 8], "num_warp": 4}, "did you mean num_warps"),
        ({"block_sizes": [8, 8]}, "block_sizes has 2 entries, and the kernel has 3 tile loops to size"),
        ({}, "block_sizes has 0 entries"),
        ({"block_sizes": [8, 8, 1 << 21]}, "the block size of tile_k is 2097152"),
        ({"block_sizes": [8, 8, 0]}, "the block size of tile_k is 0"),
        ({"block_sizes": [8, 8, 8], "l2_groupings": [3]}, "powers of two from 1 to 64"),
        ({"block_sizes": [8, 8, 8], "loop_orders": [[0, 0]]}, "orders of"),
        ({"block_sizes": [8, 8, 8], "pid_type": "diagonal"}, "'flat', 'xyz'"),
        ({"block_sizes": [8, 8, 8], "indexing": "block"}, "'pointer', 'block_ptr'"),
    ],
)
def test_wrong_configurations_say_what_is_right(config, message):
    _, _, args = KERNELS["product"]
    with pytest.raises(hl.exc.InvalidConfig) as info:
        product.bind(args).config_spec.normalize(config)
    assert message in str(info.value)


@pytest.mark.parametrize("sizes", [[[8, 16], 32], [[8], [16], [32]], ((8, 16, (32,)),)])
def test_block_sizes_may_be_grouped_by_loops(sizes):
    _, _, args = KERNELS["product"]
    spec = product.bind(args).config_spec
    assert spec.normalize({"block_sizes": sizes}) == spec.normalize({"block_sizes": [8, 16, 32]})


@hl.kernel
def powers(x):
    out = torch.empty_like(x)
    count = hl.register_tunable("count", hl.autotuner.IntegerFragment(1, 4, 2))
    width = hl.register_tunable("width", hl.autotuner.PowerOfTwoFragment(8, 32, 16))
    for rows in hl.tile(x.size(0)):
        result = x[rows] * (hl.zeros([width]).sum() + 1)
        if count > 2:
            result = result * 3
        out[rows] = result + count * width
    return out


def test_choices_of_the_program_are_keys():
    x = torch.randn(20)
    bound = powers.bind((x,))
    assert bound.config_spec.default_config()["count"] == 2
    torch.testing.assert_close(bound(x), x + 32)
    config = hl.Config(block_sizes=[8], count=3, width=8)
    torch.testing.assert_close(bound.compile_config(config)(x), x * 3 + 24)
    bound.set_config(config)
    torch.testing.assert_close(bound.run_ref(x, mode=hl.RefMode.TILED), x * 3 + 24)
    with pytest.raises(hl.exc.InvalidConfig, match="integers from 1 to 4"):
        bound.config_spec.normalize({"block_sizes": [8], "count": 5})


def test_whether_something_is_done_is_a_choice():
    @hl.kernel
    def kernel(x):
        twice = hl.register_tunable("twice", hl.autotuner.BooleanFragment())
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            if twice:
                out[rows] = x[rows] * 2
            else:
                out[rows] = x[rows] + (1 if not twice else 3)
        return out

    x = torch.randn(20)
    bound = kernel.bind((x,))
    assert bound.config_spec.default_config()["twice"] is False
    for twice, expected in ((False, x + 1), (True, x * 2)):
        config = hl.Config(block_sizes=[8], twice=twice)
        torch.testing.assert_close(bound.compile_config(config)(x), expected)
        bound.set_config(config)
        torch.testing.assert_close(bound.run_ref(x, mode=hl.RefMode.TILED), expected)


def test_names_and_types_of_choices():
    def wrong(name, fragment):
        @hl.kernel
        def kernel(x):
            chosen = hl.register_tunable(name, fragment)
            for rows in hl.tile(x.size(0)):
                x[rows] = x[rows] * chosen

        kernel.bind((torch.ones(4),))

    integers = hl.autotuner.IntegerFragment(0, 1, 0)
    with pytest.raises(hl.exc.TunableNameConflict):
        wrong("num_warps", integers)
    with pytest.raises(hl.exc.TunableTypeNotSupported):
        wrong("mode", hl.autotuner.EnumFragment(["a", "b"]))
    with pytest.raises(hl.exc.RegisterTunableArgTypes):
        wrong("mode", 3)


def test_pasted_configurations_may_have_more_than_the_kernel(caplog):
    @hl.kernel
    def kernel(x):
        out = torch.empty([x.size(0)])
        for rows in hl.tile(x.size(0)):
            out[rows] = x[rows, :].sum(-1)
        return out

    x = torch.randn(9, 40)
    pasted = {"block_sizes": [4], "reduction_loops": [16, None], "static_ranges": [True], "num_threads": [32, 1]}
    bound = kernel.bind((x,))
    bound.set_config(pasted)
    torch.testing.assert_close(bound(x), x.sum(-1))
    assert bound.config["reduction_loops"] == [16] and "static_ranges" not in bound.config
    assert "reduction_loops has 2 entries" in caplog.text and "num_threads=[32, 1] is ignored" in caplog.text


def test_fragments_without_a_default_take_the_low_end():
    @hl.kernel
    def kernel(x):
        n = hl.register_tunable("parts", hl.autotuner.PowerOfTwoFragment(2, 64))
        out = torch.zeros_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] * n
        return out

    x = torch.ones(5)
    assert kernel.bind((x,)).config_spec.default_config()["parts"] == 2
    torch.testing.assert_close(kernel(x), x * 2)


def test_blocks_of_32768():
    @hl.kernel(config=hl.Config(block_sizes=[1, 32768]))
    def kernel(x):
        out = torch.empty([x.size(0)])
        for rows in hl.tile(x.size(0)):
            total = hl.zeros([rows])
            for columns in hl.tile(x.size(1)):
                total = total + x[rows, columns].sum(-1)
            out[rows] = total
        return out

    x = torch.randn(2, 70000)
    torch.testing.assert_close(kernel(x), x.sum(-1), atol=1e-2, rtol=1e-3)


def test_random_numbers_counted_by_the_program():
    @hl.kernel
    def kernel(x):
        out, whole = torch.empty_like(x), torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = hl.rand([t], 7, offsets=t.index + 3)
            whole[t] = hl.rand([t], 7)
        return out, whole

    out, whole = kernel(torch.empty(20))
    torch.testing.assert_close(out[:-3], whole[3:])


def test_random_configurations_of_open_sizes_fit():
    """Chunks of two dimensions that are reduced together, and rows: their product is bounded, not each."""

    @hl.kernel(static_shapes=False)
    def spread(x):
        out = torch.empty_like(x)
        for b in hl.tile(x.size(0)):
            value = x[b, :, :]
            out[b, :, :] = value - value.mean(dim=(1, 2))[:, None, None]
        return out

    x = torch.randn(5, 7, 11)
    bound, rng = spread.bind((x,)), random.Random(5)
    configs = [bound.config_spec.random(rng) for _ in range(20)]
    assert all(bound.config_spec.normalize(config) == config for config in configs)
    narrow = min(configs, key=lambda config: config["block_sizes"])
    torch.testing.assert_close(bound.compile_config(narrow)(x), x - x.mean((1, 2), keepdim=True))


def test_searches_of_open_sizes_try_tiles_of_the_call():
    """Others would compute the same with more lanes that are cut; a user may still ask for them."""

    @hl.kernel(static_shapes=False)
    def twice(x):
        out = torch.empty_like(x)
        for rows, columns in hl.tile(x.shape):
            out[rows, columns] = x[rows, columns] * 2
        return out

    spec = twice.bind((torch.randn(5, 3000),)).config_spec
    rng, usual = random.Random(5), spec.default_config()["block_sizes"]
    sizes = [spec.random(rng)["block_sizes"] for _ in range(50)]
    assert max(rows for rows, _ in sizes) <= max(8, usual[0])
    assert 2048 <= max(columns for _, columns in sizes) <= max(4096, usual[1])
    assert spec.normalize({"block_sizes": [64, 8192]})["block_sizes"] == [64, 8192]
