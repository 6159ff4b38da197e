"""Who looks on where machine code would make a call, and settings that change: then Python makes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.hl.test_replayed import added, in_python, scaled, warm
from tests.torch.observers import Seen, SeenFunctions, Subclass
from tilewright import errors, hl, knobs


def test_gradients() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    wanted = torch.randn(20, 30, requires_grad=True)
    for _ in range(3):
        (found,) = torch.autograd.grad(kernel(wanted).sum(), wanted)
        torch.testing.assert_close(found, torch.full((20, 30), 2.0))
        with torch.no_grad():
            assert not kernel(wanted).requires_grad
            assert not kernel(x).requires_grad
    parameter = torch.nn.Parameter(x.clone())
    for _ in range(3):
        assert kernel(parameter).requires_grad
        with torch.no_grad():
            assert type(kernel(parameter)) is torch.Tensor
    x.requires_grad_()
    assert kernel(x).requires_grad


def test_tangents_are_refused() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(hl.exc.NotDifferentiable):
        kernel(torch.autograd.forward_ad.make_dual(x, x))
    with pytest.raises(hl.exc.NotDifferentiable):
        torch.func.jvp(kernel, (x,), (x,))


def test_inference_mode() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    with torch.inference_mode():
        assert kernel(x).is_inference()
        warm(kernel, x)
        y = torch.randn(20, 30)
        torch.testing.assert_close(kernel(y), y * 2)
    assert not kernel(x).is_inference()
    torch.testing.assert_close(kernel(y), y * 2)


def test_function_modes_see_host_code() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    with SeenFunctions() as seen:
        torch.testing.assert_close(kernel(x), x * 2)
    assert any("empty_like" in name for name in seen.names)
    with torch.device("cpu"):
        torch.testing.assert_close(kernel(x), x * 2)
    warm(kernel, x)


def test_profilers_see_host_code() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    with torch.profiler.profile() as profile:
        for _ in range(100):
            kernel(x)
    assert any(event.key == "aten::empty_like" and event.count == 100 for event in profile.key_averages())
    warm(kernel, x)


def test_autocast_changes_nothing() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert kernel(x).dtype is torch.float32


def test_memory_is_filled_where_pytorch_is_asked_to() -> None:
    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x):
        out = torch.empty([x.size(0) + 1])
        for t in hl.tile(x.size(0)):
            out[t] = x[t]
        return out

    x = torch.randn(40)
    warm(kernel, x)
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(3):
            assert kernel(x)[-1].isnan()
    finally:
        torch.use_deterministic_algorithms(False)
    assert not in_python(lambda: kernel(x))


def test_the_usual_type_of_floats() -> None:
    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x):
        out = torch.empty([x.size(0)])
        for t in hl.tile(x.size(0)):
            out[t] = x[t]
        return out

    x = torch.randn(40)
    warm(kernel, x)
    try:
        for kind in (torch.float64, torch.float32, torch.float64):
            torch.set_default_dtype(kind)
            for _ in range(3):
                assert kernel(x).dtype is kind
                torch.testing.assert_close(kernel(x), x.to(kind))
    finally:
        torch.set_default_dtype(torch.float32)


def test_subclasses_of_tensors() -> None:
    """They are asked, where somebody does that; else it is an error."""
    import tilewright.torch  # noqa: F401

    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    for _ in range(3):
        assert "traced" in in_python(lambda: kernel(x.as_subclass(Subclass)))


def test_negated_views_and_no_elements() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    for _ in range(3):
        with pytest.raises(errors.ArgumentError, match="negated"):
            kernel(torch._neg_view(x))
        assert kernel(torch.empty(0, 30)).shape == (0, 30)
        assert kernel(x[:0]).shape == (0, 30)


def test_settings_hooks_and_configurations_that_change() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    seen: list[Any] = []
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        for _ in range(3):
            kernel(x)
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)
    assert len(seen) == 3
    warm(kernel, x)
    assert len(seen) == 3
    bound = kernel.bind((x,))
    before = bound.config
    bound.set_config({"block_sizes": [4, 8]})
    assert in_python(lambda: kernel(x))
    torch.testing.assert_close(warm(kernel, x), x * 2)
    assert bound.config != before
    kernel.reset()
    assert in_python(lambda: kernel(x))
    torch.testing.assert_close(warm(kernel, x), x * 2)
    with knobs.runtime.scope():
        knobs.runtime.interpret = True
        torch.testing.assert_close(kernel(x), x * 2)
    torch.testing.assert_close(warm(kernel, x), x * 2)


def test_wrong_arguments_have_their_errors() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    with pytest.raises(Exception, match="missing a required argument"):
        kernel()
    with pytest.raises(Exception, match="too many"):
        kernel(x, 1.0, 2, 3)
    torch.testing.assert_close(kernel(x), x * 2)


def test_compiled_functions_and_transforms() -> None:
    import tilewright.torch  # noqa: F401

    kernel, x = scaled(), torch.randn(20, 30)
    for _ in range(3):
        kernel(x)
    compiled = torch.compile(lambda x: kernel(x) + 1, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), x * 2 + 1)
    mapped = torch.vmap(kernel)(x.expand(3, 20, 30))
    torch.testing.assert_close(mapped, (x * 2).expand(3, 20, 30))
    with Seen() as seen:
        torch.testing.assert_close(kernel(x), x * 2)
    assert seen.names


def test_versions_of_what_is_written() -> None:
    """With a tracer there launches count as changes, whoever makes them."""
    import tilewright.torch  # noqa: F401

    kernel = added()
    x, y, out = torch.randn(40), torch.randn(40), torch.empty(40)
    counts = []
    for _ in range(5):
        before = out._version
        kernel(x, y, out)
        counts.append(out._version - before)
    assert counts == [1] * 5


def test_classes_with_calls_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Own(hl.Kernel):
        def __call__(self, *args: Any) -> Any:
            seen.append("own")
            return super().__call__(*args)

    x = torch.randn(20, 30)
    kernel = Own(scaled().fn)
    for _ in range(4):
        torch.testing.assert_close(kernel(x), x * 2)
    assert seen == ["own"] * 4
    usual = scaled()
    warm(usual, x)
    plain = hl.Kernel.__call__
    monkeypatch.setattr(hl.Kernel, "__call__", lambda self, *args: (seen.append("patched"), plain(self, *args))[1])
    other = scaled()
    for _ in range(4):
        torch.testing.assert_close(usual(x), x * 2)
        torch.testing.assert_close(other(x), x * 2)
    assert seen[4:] == ["patched"] * 8
    monkeypatch.undo()
    torch.testing.assert_close(usual(x), x * 2)
    warm(scaled(), x)
    assert not in_python(lambda: usual(x))
