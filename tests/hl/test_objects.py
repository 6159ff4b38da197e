"""Kernels as objects (copied, pickled, held by modules, in classes), and arguments of all types."""

from __future__ import annotations

import copy
import functools
import logging
import pickle

import pytest
import torch

from tilewright import errors, hl
from tilewright.hl import exc
from tilewright.hl.runtime import tracer_slot


@hl.kernel
def doubled(x, factor: int = 2):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * factor
    return out


def plain(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + 1
    return out


renamed = hl.kernel(plain, config=hl.Config(block_sizes=[4]), fast_math=True)


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((6,), 3.0), requires_grad=False)
        self.kernel, self.bias = doubled, 1.0

    @hl.kernel
    def scaled(self, x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] * self.weight[t] + self.bias
        return out

    def forward(self, x):
        return self.kernel(self.scaled(x))


class Plain:
    def __init__(self, shift):
        self.shift = shift

    @staticmethod
    @hl.kernel
    def more(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] + 1
        return out

    @hl.kernel
    def shifted(self, x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] + self.shift
        return out


def test_copies_and_pickles():
    x = torch.randn(6)
    assert copy.copy(doubled) is doubled and copy.deepcopy({"k": [doubled]})["k"][0] is doubled
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    back = pickle.loads(pickle.dumps(renamed))
    assert back.settings.fast_math and back.configs == renamed.configs
    torch.testing.assert_close(back(x), x + 1)
    bound = doubled.bind((x,))
    with pytest.raises(errors.NotPickledError, match="pickle the kernel"):
        pickle.dumps(bound)
    config = bound.default_config()
    assert pickle.loads(pickle.dumps(config)) == config == copy.deepcopy(config)


def test_modules_hold_kernels():
    module, x = Scale(), torch.randn(6)
    expected = (x * 3 + 1) * 2
    for one in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(one(x), expected)
    module.weight.fill_(4.0)
    module.bias = 0.5
    torch.testing.assert_close(module(x), (x * 4 + 0.5) * 2)


def test_methods_and_partials():
    x, one = torch.randn(6), Plain(3)
    torch.testing.assert_close(one.shifted(x), x + 3)
    torch.testing.assert_close(Plain(4).shifted(x), x + 4)
    one.shift = 5
    torch.testing.assert_close(one.shifted(x), x + 5)
    torch.testing.assert_close(Plain.more(x), x + 1)
    torch.testing.assert_close(one.more(x), x + 1)
    torch.testing.assert_close(functools.partial(doubled, factor=3)(x), x * 3)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (functools.partial(plain), "functools.partial of the kernel"),
        (staticmethod(plain), "@staticmethod above"),
        (classmethod(plain), "@classmethod above"),
        (Plain(1).__init__, "in its class"),
        (Plain, "defined with def"),
        (len, "defined with def"),
    ],
)
def test_what_is_no_function(what, text):
    with pytest.raises(exc.InvalidSignature, match=f"(?s)hl.kernel of a .*{text}"):
        hl.kernel(what)


class Unhashable:
    __hash__ = None

    def __eq__(self, other):
        return True


class Marked(torch.Tensor):
    pass


def test_arguments_of_other_types(monkeypatch):
    monkeypatch.setattr(tracer_slot, "_tracer", None)
    numpy = pytest.importorskip("numpy")
    x = torch.zeros(3)
    for argument, name in (
        ({1, 2}, "set"),
        (numpy.zeros(3), "numpy.ndarray"),
        (Unhashable(), "Unhashable"),
        (x.to_sparse(), "sparse_coo"),
        (x.as_subclass(Marked), "Marked"),
    ):
        with pytest.raises(TypeError, match=name):
            doubled(x, argument)
        with pytest.raises(TypeError, match=name):
            doubled(x, [argument])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_whose_elements_have_no_strides():
    kernel = hl.kernel(plain)
    kernel(torch.ones(2))  # also where a call is compared with the last one
    for tensor, name in (
        (torch.nested.nested_tensor([torch.ones(2)]), "a nested tensor"),
        (torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.quint8), "a quantized tensor"),
        (torch.ones(2).to_sparse(), "of layout torch.sparse_coo"),
    ):
        with pytest.raises(TypeError, match=f"argument x of .* is .*{name}"):
            kernel(tensor)


def sums_of_rows(values, offsets):
    out = torch.zeros([offsets.size(0) - 1, values.size(1)], device=values.device)
    for row in hl.grid(offsets.size(0) - 1):
        for part in hl.tile(offsets[row], offsets[row + 1]):
            out[row, :] = out[row, :] + values[part, :].sum(0)
    return out


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_parts_of_a_nested_tensor_are_arguments():
    rows = [torch.randn(3, 4), torch.randn(50, 4)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    expected = torch.stack([row.sum(0) for row in rows])
    torch.testing.assert_close(hl.kernel(sums_of_rows)(nested.values(), nested.offsets()), expected)
    with pytest.raises(exc.UnsupportedPythonType, match=r"pass its values\(\) and offsets\(\)"):
        hl.kernel(sums_of_rows)(nested, nested.offsets())
    with pytest.raises(exc.UnsupportedPythonType, match="make it with layout=torch.jagged"):
        hl.kernel(sums_of_rows)(torch.nested.nested_tensor(rows), nested.offsets())


def test_names_that_helion_had_once_say_what_to_write():
    for name, written in (("signal", "atomic_xchg"), ("wait", "atomic_add")):
        with pytest.raises(AttributeError, match=written):
            getattr(hl, name)
        assert not hasattr(hl.language, name)
    with pytest.raises(AttributeError, match="has no 'tyle'"):
        _ = hl.tyle


def test_code_goes_to_standard_error(capsys):
    loud = hl.kernel(plain, print_output_code=True)
    loud(torch.zeros(3))
    captured = capsys.readouterr()
    assert captured.out == "" and "@tilewright.jit" in captured.err


def test_configurations_and_settings():
    config = hl.Config(block_sizes=[4], num_warps=8)
    assert config.block_sizes == [4] and config.num_warps == 8
    assert not hasattr(config, "num_stages")
    assert hl.Settings.default().static_shapes
    with pytest.raises(exc.InvalidAPIUsage, match="settings= and static_shapes"):
        hl.kernel(plain, settings=hl.Settings(), static_shapes=False)
    assert hl.kernel(plain, settings={"static_shapes": False}).settings.static_shapes is False
    line = renamed.bind((torch.zeros(3),)).format_kernel_decorator(hl.Config(block_sizes=[2]))
    assert line == "@hl.kernel(config=hl.Config(block_sizes=[2]), fast_math=True)"
    again = eval(line[1:], {"hl": hl})(plain)
    assert again.settings.fast_math
    silent = hl.kernel(plain, ignore_warnings=[exc.OverwrittenStore, exc.TensorOperationInWrapper])
    line = silent.bind((torch.zeros(3),)).format_kernel_decorator(hl.Config(block_sizes=[2]))
    assert "ignore_warnings=[hl.exc.OverwrittenStore, hl.exc.TensorOperationInWrapper]" in line
    assert eval(line[1:], {"hl": hl})(plain).settings.ignore_warnings == silent.settings.ignore_warnings
    for wrong in (["OverwrittenStore"], [ValueError], True):
        with pytest.raises(exc.InvalidAPIUsage, match="give a list of classes"):
            hl.kernel(plain, ignore_warnings=wrong)
    with pytest.raises(exc.InvalidAPIUsage, match=r"bind\(\(x,\)\)"):
        renamed.bind(torch.zeros(3))
    assert hl.Kernel[torch.Tensor].__origin__ is hl.Kernel
    assert "block_sizes" in repr(renamed.bind((torch.zeros(3),)).config_spec)


def test_keys_have_what_was_specialised():
    @hl.kernel(static_shapes=False)
    def kernel(x):
        out, n = torch.empty_like(x), hl.specialize(x.size(1))
        for t in hl.tile(x.size(0)):
            out[t, :] = x[t, :] * n
        return out

    keys = set()
    for n in (3, 5):
        x = torch.randn(4, n)
        torch.testing.assert_close(kernel(x), x * n)
        keys |= {kernel.specialization_key((x,)), kernel.bind((x,)).specialization_key}
    assert len(keys) == 2


def test_loggers(caplog):
    with caplog.at_level(logging.DEBUG, logger="tilewright.hl"):
        hl.kernel(plain)(torch.zeros(5))
    assert "plain: bound" in caplog.text and "plain: compiled with hl.Config(" in caplog.text
