"""The backward pass of a whole call from its arguments and results, as an operator of PyTorch has them.

The host code runs again while PyTorch watches, and goes back through it. Loops run again only where something is needed
that is neither an argument nor a result: the first backward pass runs everything and finds out.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import torch

from tilewright.hl.config import Config
from tilewright.hl.grad import calls
from tilewright.hl.grad.calls import Differentiated
from tilewright.hl.grad.runs import Place, Run, running
from tilewright.hl.runtime.kernel import Kernel


def check(kernel: Kernel, args: tuple[Any, ...], mode: AbstractContextManager[Any]) -> None:
    """Derive the backward pass of a call, nothing of which is launched.

    Args:
        kernel: what is called.
        args: with what, by position; tensors may be fake.
        mode: in which the host code runs.

    Raises:
        NotDifferentiable: there is none.
    """
    found = calls.differentiated(kernel, args)
    with running(Run(launching=False)), torch.enable_grad(), mode:
        found.run(_untuned(found), args)


def _untuned(found: Differentiated) -> Config:
    """The configuration of a call that is not made: nothing is timed."""
    return found.bound.config or found.bound.known_config() or found.bound.default_config()


def gradients(
    kernel: Kernel,
    args: tuple[Any, ...],
    results: Sequence[Any],
    wanted: Sequence[Any],
    ups: Sequence[Any],
    *,
    traced: bool = False,
) -> list[Any]:
    """The gradients of a call.

    Args:
        kernel: what was called.
        args: with what, by position.
        results: tensors that the call has made, in the order of `made_of`.
        wanted: leaves among `args`, which require gradients.
        ups: the gradients of `results`; anything for those of integers.
        traced: whether somebody writes down what happens, and the tensors have no data.

    Returns:
        One for each of `wanted`; None where none flows.
    """
    with torch.enable_grad():
        found = calls.differentiated(kernel, args)
        if not traced:
            found.bound.ensure_config_exists(args)
        config = _untuned(found)
        key = config, tuple(leaf.requires_grad for leaf in wanted)
        places = found.places.get(key)
        if places is not None:
            with running(Run(launching=False, given={place: results[at] for place, at in places.items()})):
                made = made_of(found.run(config, args), args)
        elif traced:
            made, found.places[key] = _watched(found, config, args)
        else:
            with ThreadPoolExecutor(1) as aside:  # transforms of torch.func forbid hooks in their thread
                made, found.places[key] = aside.submit(_watched, found, config, args).result()
        pairs = [(out, up) for out, up in zip(made, ups, strict=True) if out.requires_grad]
        if not pairs:
            return [None] * len(wanted)
        outs, grads = zip(*pairs, strict=True)
        return list(torch.autograd.grad(outs, wanted, grads, allow_unused=True))


def _watched(found: Differentiated, config: Config, args: tuple[Any, ...]) -> tuple[list[Any], dict[Place, int] | None]:
    """Run everything; what was made, and which results the loops save: None where loops have to run again."""
    known = set(map(_memory, _tensors(args)))
    run, strange = Run(), False

    def pack(tensor: Any) -> Any:
        nonlocal strange
        strange = strange or bool(not run.is_step and run.loops and _memory(tensor) not in known)
        return tensor

    with running(run), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made = made_of(found.run(config, args), args)
    places: dict[Place, int] = {}
    for place, (tensor, version) in run.saved.items():
        same = [at for at, one in enumerate(made) if _form(one) == _form(tensor) and one._version == version]
        if same:
            places[place] = same[0]
        elif _memory(tensor) not in known:
            strange = True
    return made, None if strange else places


def made_of(result: Any, args: tuple[Any, ...]) -> list[Any]:
    """The tensors that a call has made, those of one memory once, in the order in which it returns them."""
    given = set(map(_memory, _tensors(args)))
    found: dict[int, Any] = {}
    for tensor in _tensors(result):
        if _memory(tensor) not in given:
            found.setdefault(_memory(tensor), tensor)
    return list(found.values())


def _tensors(tree: Any) -> list[Any]:
    """The tensors in arguments or results."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [tensor for part in tree for tensor in _tensors(part)] if isinstance(tree, (list, tuple)) else []


def _memory(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _form(tensor: Any) -> Any:
    return _memory(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()
