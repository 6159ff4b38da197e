"""`triton._utils`: walks of nested tuples by path."""

from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[int, ...]


def get_iterable_path(iterable: Any, path: Path) -> Any:
    """What lies at `path` in nested sequences: one index a level."""
    for index in path:
        iterable = iterable[index]
    return iterable


def find_paths_if(iterable: Any, predicate: Callable[[Path, Any], bool]) -> list[Path]:
    """Paths of the leaves of nested tuples and lists for which `predicate(path, leaf)` holds, in order."""

    def walk(path: Path, value: Any) -> Iterator[Path]:
        if isinstance(value, (tuple, list)):
            for index, item in enumerate(value):
                yield from walk((*path, index), item)
        elif predicate(path, value):
            yield path

    return list(walk((), iterable))


__all__ = ["find_paths_if", "get_iterable_path"]
