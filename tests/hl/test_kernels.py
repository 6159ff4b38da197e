"""Small whole kernels against PyTorch, and what their generated modules look like."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from tests.meta.sources import ROOT
from tilewright import hl


@hl.kernel
def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@hl.kernel
def scaled_bias(x, bias, scale):
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile(x.shape):
        out[tile_m, tile_n] = x[tile_m, tile_n] * scale + bias[tile_n]
    return out


@hl.kernel
def softmax(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], dim=-1)
    return out


@hl.kernel
def layer_norm(x, weight, bias, eps):
    m, n = x.shape
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        out[rows, :] = F.layer_norm(x[rows, :], [n], weight[:], bias[:], eps)
    return out


@hl.kernel
def row_sums(x):
    m, n = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        state = {"sum": hl.zeros([tile_m])}
        for tile_n in hl.tile(n):
            state["sum"].add_(x[tile_m, tile_n].sum(-1))
        out[tile_m] = state["sum"]
    return out


def close(kernel, expected, *args, **config):
    bound = kernel.bind(args)
    if config:
        bound.set_config(hl.Config(**config))
    torch.testing.assert_close(bound(*args), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("block", [1, 16, 1024])
def test_add(block):
    x, y = torch.randn(1003), torch.randn(1003)
    close(add, x + y, x, y, block_sizes=[block])


@pytest.mark.parametrize("blocks", [[16, 16], [8, 10], [103, 70], [1, 64]])
def test_broadcast(blocks):
    x, bias = torch.randn(103, 70), torch.randn(70)
    close(scaled_bias, x * 3 + bias, x, bias, 3, block_sizes=blocks)


def test_numbers_are_arguments_of_the_compiled_kernel():
    x, bias = torch.randn(8, 8), torch.randn(8)
    bound = scaled_bias.bind((x, bias, 3))
    assert bound is scaled_bias.bind((x, bias, 5))
    torch.testing.assert_close(bound(x, bias, 5), x * 5 + bias)


@pytest.mark.parametrize("shape", [(103, 70), (8, 64), (1, 5)])
def test_softmax(shape):
    x = torch.randn(shape)
    close(softmax, torch.softmax(x, -1), x)


def test_softmax_of_a_transposed_tensor():
    x = torch.randn(70, 103).t()
    close(softmax, torch.softmax(x, -1), x)


def test_layer_norm():
    x, weight, bias = torch.randn(103, 70), torch.randn(70), torch.randn(70)
    close(layer_norm, F.layer_norm(x, [70], weight, bias, 1e-5), x, weight, bias, 1e-5)


@pytest.mark.parametrize("blocks", [[32, 64], [103, 35], [1, 128]])
def test_state_in_a_dictionary_changed_in_place_is_carried(blocks):
    x = torch.randn(103, 70)
    close(row_sums, x.sum(-1), x, block_sizes=blocks)


def test_calls_after_the_first_take_the_binding_of_their_own_kind():
    calls = [
        (torch.randn(9), torch.randn(9)),
        (torch.randn(9), torch.randn(9)),
        (torch.randn(8), torch.randn(8)),
        (torch.randn(18)[::2], torch.randn(9)),
        (torch.randn(9).double(), torch.randn(9).double()),
        (torch.randint(9, (9,)), torch.randint(9, (9,))),
        (torch.randn(9), torch.randn(9)),
    ]
    for x, y in calls:
        torch.testing.assert_close(add(x, y), x + y)
    x, weight = torch.randn(5, 4), torch.randn(4)
    for eps in (1e-5, 1e-5, 0.5, 1e-5):
        torch.testing.assert_close(layer_norm(x, weight, weight, eps), F.layer_norm(x, [4], weight, weight, eps))


def test_empty_tensors():
    assert add(torch.empty(0), torch.empty(0)).shape == (0,)
    assert softmax(torch.empty(0, 5)).shape == (0, 5)


def test_code_has_the_users_lines_and_masks_only_where_a_tile_is_cut():
    exact = softmax.bind((torch.randn(64, 32),)).to_code(hl.Config(block_sizes=[16]))
    assert "mask" not in exact and "# out[rows, :] = torch.softmax(x[rows, :], dim=-1)" in exact
    cut = softmax.bind((torch.randn(65, 32),)).to_code(hl.Config(block_sizes=[16]))
    assert "mask_rows = index_rows < 65" in cut and "tl.where" not in cut


def test_code_runs_by_itself(tmp_path):
    code = layer_norm.bind((torch.randn(9, 7), torch.randn(7), torch.randn(7), 1e-5)).to_code()
    path = tmp_path / "generated.py"
    path.write_text(
        code + "\nx = torch.randn(9, 7)\n"
        "w, b = torch.randn(7), torch.randn(7)\n"
        "torch.testing.assert_close(layer_norm(x, w, b, 1e-5), torch.nn.functional.layer_norm(x, [7], w, b, 1e-5))\n"
    )
    subprocess.run([sys.executable, str(path)], check=True, cwd=ROOT, env=_environment())


def _environment():
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


PROBE = """
import sys, torch
from tilewright import hl
sys.path.insert(0, "tests/hl")
import test_kernels
test_kernels.softmax(torch.randn(8, 8))
print(sorted(name for name in ("sympy", "torch._dynamo", "torch._inductor") if name in sys.modules))
"""


def test_binding_and_running_load_no_compiler_of_torch():
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, cwd=ROOT, env=_environment(), check=True
    )
    assert done.stdout.strip() == "[]"


def test_sizes_are_equal_whichever_side_of_the_check_they_stand_on():
    """Each check merges two; the one that is named first may be of a later argument, and be merged again."""

    @hl.kernel(config=hl.Config(block_sizes=[8]), static_shapes=False)
    def added(a, b, c, d):
        assert b.size(0) == a.size(0) and d.size(0) == c.size(0)
        assert c.size(0) == a.size(0)
        out = torch.empty_like(d)
        for tile in hl.tile(a.size(0)):
            out[tile] = a[tile] + b[tile] + c[tile] + d[tile]
        return out

    for size in (20, 33):
        a, b, c, d = torch.randn(4, size)
        torch.testing.assert_close(added(a, b, c, d), a + b + c + d)
