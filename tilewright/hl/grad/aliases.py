"""Gradients of views, added into the gradient of the tensor that they are views of.

    flat = logits.view(-1)
    for rows in tiles:                           grad_flat = grad_logits.view(-1)
        ... logits[rows, :]                      for rows in tiles: grad_logits[rows, :] = ...
        ... flat[rows.index * n + labels[rows]]  for rows in tiles: atomic_add(grad_flat, [...], ...)

A gradient of its own would be cleared, filled at some places, and added: three more passes over a tensor of this size.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.hl.grad.owners import Contribution, Owner, covers, decide
from tilewright.hl.grad.program import Made
from tilewright.hl.grad.simplify import simplify
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Value, clone, walk

Aliases = frozenset[tuple[str, str]]
"""Pairs of names: a view, and the tensor that it is a view of."""


def candidates(tensors: Mapping[str, HostTensor], function: ast.FunctionDef) -> list[tuple[str, str]]:
    """The pairs of contiguous tensors of as many elements, of which one may be a view that the host code makes.

    A view that the caller has may be asked for its own gradient.
    """
    forms = {name: _form(tensor) for name, tensor in tensors.items() if tensor.dtype.is_floating_point}
    nodes = list(ast.walk(function))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own -= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Return) and node.value is not None:
            own -= {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
    pairs = [(a, b) for a, b in itertools.permutations(forms, 2) if forms[a] is not None and forms[a] == forms[b]]
    return [(view, base) for view, base in pairs if tensors[view].text in own]


def _form(tensor: HostTensor) -> Any:
    """Number and type of the elements of a contiguous tensor; None of others."""
    sizes = tuple(tensor.shape)
    if not all(type(size) is int for size in (*sizes, *tensor.stride)) or tensor.dtype.itemsize < 4:
        return None  # 16-bit numbers would be rounded between the two sums
    expected = tuple(math.prod(sizes[at + 1 :]) for at in range(len(sizes)))
    return (math.prod(sizes), tensor.dtype) if tuple(tensor.stride) == expected else None


def is_view(one: Any, of: Any) -> bool:
    """Whether PyTorch adds the gradient of a tensor to that of another one in the same order of elements."""
    made = one.grad_fn
    if made is None or type(made).__name__ not in _VIEWS:
        return False
    ((source, number),) = made.next_functions
    if of.grad_fn is None:
        return getattr(source, "variable", None) is of
    return source is of.grad_fn and number == of.output_nr


_VIEWS = ("ViewBackward0", "ReshapeAliasBackward0", "UnsafeViewBackward0", "UnsqueezeBackward0")


def join(
    region: Region, found: dict[str, list[Contribution]], aliases: Aliases, fresh: Callable[[], int]
) -> dict[str, Owner]:
    """Move atomic contributions to views into loops of their own, behind those that store the rest.

    Args:
        region: ends with the loop of the backward pass.
        found: the contributions in it, by tensor.
        aliases: which tensors are views of which.
        fresh: gives numbers that no value has.

    Returns:
        By name of the view, who adds up what was moved.
    """
    made: dict[str, Owner] = {}
    taken: set[str] = set()
    for view, base in sorted(aliases):
        if view not in found or base not in found or {view, base} & taken or len(found[base]) > 1:
            continue
        (one,) = found[base]
        owner = decide(found[view])
        if owner.form != "atomic" or decide([one]).form != "store" or not covers(one):
            continue
        moved = alone(region, view, fresh)
        if moved is not None:
            nodes = {id(contribution.node) for contribution in found[view]}
            for contribution in found[view]:
                contribution.region.nodes = [n for n in contribution.region.nodes if id(n) not in nodes]
            region.nodes.append(moved)
            taken |= {view, base}
            made[view] = Owner(view, "joined", f"{base} has the same elements, and {owner.why}", owner.line)
    return made


def alone(region: Region, name: str, fresh: Callable[[], int]) -> Node | None:
    """A loop with nothing but the contributions to one tensor; None where that computes much again."""
    values: dict[int, Value] = {}
    copy = clone(region, values)
    for value in values.values():
        value.id = fresh()
    effects = ("store", "atomic_gradient")
    for body in [copy, *(inner for node in walk(copy) for inner in node.regions)]:
        body.nodes = [n for n in body.nodes if n.op not in effects or (n.op == effects[1] and n.args[0].name == name)]
    simplify(copy)
    nodes = list(walk(copy))
    sizes = {dim for node in nodes if node.op == "atomic_gradient" for dim in node.kwargs["dims"]}
    loads = [node for node in nodes if node.op == "load"]
    cheap = all(dim in sizes for node in loads for dim in node.out.dims)
    return copy.nodes[0] if cheap and len(copy.nodes) == 1 and [n.op for n in nodes].count("loop") == 1 else None


def made(view: HostTensor, base: str) -> Made:
    """The gradient of a view, which is a view of that of the other tensor."""
    return Made(f"grad_{view.name}", f"grad_{base}.view({{shape}})", tuple(view.shape))


def of_call(pairs: list[tuple[str, str]], named: Mapping[str, torch.Tensor]) -> Aliases:
    """Those of the candidates that are views in a call."""
    return frozenset((view, base) for view, base in pairs if is_view(named[view], named[base]))
