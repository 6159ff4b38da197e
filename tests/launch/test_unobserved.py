"""Functions that machine code calls at once where nobody in PyTorch looks on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.observers import Seen, SeenFunctions, Subclass  # noqa: E402
from tilewright.launch.native.operators import Unobserved  # noqa: E402


class Calls:
    """A function, what is called in its place, and what the function saw."""

    def __init__(self, floats: tuple[int, ...] = ()) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.unobserved = Unobserved(self.run, self.look, floats)
        if self.unobserved.call is None:
            pytest.skip("an interpreter or a torch that machine code does not know")
        self.call: Any = self.unobserved.call
        self.unobserved.allow(True)

    def run(self, *args: Any, **kwargs: Any) -> str:
        self.seen.append((args, kwargs, torch.is_grad_enabled()))
        if args and args[0] == "raise":
            raise KeyError("of the function")
        return "at once"

    def look(self, *args: Any, **kwargs: Any) -> str:
        return f"observed {len(args)} {sorted(kwargs)}"


def test_plain_arguments() -> None:
    calls, x = Calls(), torch.ones(3)
    plain = (x, torch.nn.Parameter(x, requires_grad=False), 1, 2.0, True, "text", None, torch.int8, torch.device("cpu"))
    assert calls.call(*plain, y=x) == calls.call() == "at once"
    assert calls.seen == [(plain, {"y": x}, False), ((), {}, False)]
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert calls.call(torch.nn.Parameter(x)) == "at once" and not torch.is_grad_enabled()
    with torch.inference_mode():
        assert calls.call(torch.ones(2)) == "at once"


@pytest.mark.parametrize("other", [[torch.ones(1)], (1,), {}, torch.ones(1).as_subclass(Subclass), 1j], ids=str)
def test_other_classes(other: Any) -> None:
    calls = Calls()
    assert calls.call(1, other) == "observed 2 []" and calls.call(x=other) == "observed 0 ['x']"


def test_gradients_are_recorded() -> None:
    calls, x = Calls(), torch.ones(3, requires_grad=True)
    assert calls.call(x) == calls.call(x * 2) == "observed 1 []" and calls.call(1, x=x) == "observed 1 ['x']"
    assert calls.call(x.detach()) == "at once"


@pytest.mark.parametrize("who", ["mode", "functions", "autocast", "transform", "fake"])
def test_who_looks_on(who: str) -> None:
    calls, x = Calls(), torch.ones(3)
    contexts = {
        "mode": Seen,
        "functions": SeenFunctions,
        "autocast": lambda: torch.autocast("cpu"),
        "fake": torch._subclasses.FakeTensorMode,
    }
    found: list[str] = []
    if who == "transform":
        torch.func.vmap(lambda y: (found.append(calls.call(1)), y)[1])(x)
        assert found == ["observed 1 []"]
    else:
        with contexts[who]():
            assert calls.call(x) == "observed 1 []"
            other = threading.Thread(target=lambda: found.append(calls.call(x)))  # it is this thread's alone
            other.start()
            other.join()
        assert found == ["at once"]
    assert calls.call(x) == "at once"


def test_integers_for_floats() -> None:
    calls = Calls(floats=(1, 3))
    assert calls.call(1, 2.0, 3, 4.0, 5) == "at once"
    assert calls.call(1, 2) == "observed 2 []" and calls.call(1, 2.0, 3, 4) == "observed 4 []"
    assert calls.call(1, a=2.0) == "observed 1 ['a']"  # by name Python looks


def test_errors_leave_nothing_behind() -> None:
    calls = Calls()
    with pytest.raises(KeyError, match="of the function"):
        calls.call("raise")
    assert torch.is_grad_enabled()


def test_not_allowed() -> None:
    calls = Calls()
    calls.unobserved.allow(False)
    assert calls.call(1) == "observed 1 []" and not calls.seen
