"""The state of a kernel's variables as leaves of trees: what a loop or a branch changes is found here, not by names."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

Path = tuple[Any, ...]


class Attribute(str):
    """A key of a path that is the name of an attribute."""


def children(tree: Any) -> list[tuple[Any, Any]]:
    """(key, part) of a container; none of anything else."""
    if isinstance(tree, dict):
        return list(tree.items())
    if isinstance(tree, torch.Size):
        return []
    if isinstance(tree, list | tuple):
        return list(enumerate(tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [(Attribute(field.name), getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    return []


def tensors(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """(path, tensor) of every tensor in nested containers."""
    if isinstance(tree, torch.Tensor):
        yield path, tree
        return
    for key, item in children(tree):
        yield from tensors(item, (*path, key))


def leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """(path, leaf) of everything in nested containers that is no container."""
    parts = children(tree)
    if not parts and not isinstance(tree, dict | list | tuple):
        yield path, tree
    for key, item in parts:
        yield from leaves(item, (*path, key))


def copied(tree: Any, known: dict[int, Any] | None = None) -> Any:
    """Containers copied, leaves shared; one container that is reached twice stays one."""
    known = {} if known is None else known
    if id(tree) in known:
        return known[id(tree)]
    if type(tree) is dict:
        fresh: Any = {}
        known[id(tree)] = fresh
        fresh.update((key, copied(item, known)) for key, item in tree.items())
    elif type(tree) is list:
        fresh = []
        known[id(tree)] = fresh
        fresh.extend(copied(item, known) for item in tree)
    elif isinstance(tree, tuple) and not isinstance(tree, torch.Size):
        items = [copied(item, known) for item in tree]
        fresh = type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    elif children(tree):
        fresh = copy.copy(tree)
        known[id(tree)] = fresh
        for key, item in children(tree):
            object.__setattr__(fresh, key, copied(item, known))
    else:
        return tree
    return fresh


def alike(left: Any, right: Any) -> bool:
    """Whether two trees have the same leaves at the same places."""
    ours, theirs = list(leaves(left)), list(leaves(right))
    return len(ours) == len(theirs) and all(
        one[0] == other[0] and one[1] is other[1] for one, other in zip(ours, theirs, strict=True)
    )


def get(tree: Any, path: Path) -> Any:
    """The leaf at `path`."""
    for key in path:
        tree = tree[key] if isinstance(tree, dict | list | tuple) else getattr(tree, key)
    return tree


def put(tree: Any, path: Path, leaf: Any) -> Any:
    """`tree` with another leaf at `path`: changed in place where it can be, else a new tuple."""
    if not path:
        return leaf
    key, rest = path[0], path[1:]
    if isinstance(tree, tuple):
        items = [put(item, rest, leaf) if at == key else item for at, item in enumerate(tree)]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    if isinstance(tree, dict | list):
        tree[key] = put(tree[key], rest, leaf)
    else:
        object.__setattr__(tree, key, put(getattr(tree, key), rest, leaf))
    return tree


def rebuilt(tree: Any, items: dict[Any, Any]) -> Any:
    """A container like `tree` that holds `items`, by the keys of `children`."""
    if isinstance(tree, dict):
        return type(tree)(items) if type(tree) is not dict else dict(items)
    if isinstance(tree, list | tuple):
        parts = list(items.values())
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    fresh = copy.copy(tree)
    for name, item in items.items():
        object.__setattr__(fresh, name, item)
    return fresh


def path_text(path: Path) -> str:
    """A path as Python writes it: `state['m'][0]`."""
    head, *rest = path
    return str(head) + "".join(f".{key}" if isinstance(key, Attribute) else f"[{key!r}]" for key in rest)


def path_name(path: Path) -> str:
    """A path as a name: `state_m_0`."""
    return "_".join(str(part) for part in path)
