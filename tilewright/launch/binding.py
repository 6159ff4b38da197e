"""Calls bound the way that Triton's binders bind them, for libraries that key and compile by themselves.

::

    binder(*args, **kwargs) -> arguments by name, [(type, key) of each], options
    compute_cache_key(...)  -> the text under which `device_caches` has the variant
    pack_args(...)          -> options, signature, constants, facts: what an `ASTSource` takes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.options import Options
from tilewright.compile.request import complete_options
from tilewright.compile.specialize import ALIGNMENT, CONSTEXPR, DIVISIBLE, Specialization
from tilewright.devices.drivers import driver
from tilewright.devices.registry import OPTION_NAMES

if TYPE_CHECKING:
    from tilewright.launch.bind import Binder

Pairs = list[tuple[Any, Any]]
Bound = tuple[dict[str, Any], Pairs, dict[str, Any]]


class TritonBinder:
    """A binder: called with the arguments of a launch it gives them by name, their types and keys, and the options.

    Args:
        binder: of the kernel.
    """

    def __init__(self, binder: Binder) -> None:
        self._binder = binder

    def __call__(self, *args: Any, **kwargs: Any) -> Bound:
        call = self._binder.bind(*args, **kwargs)
        return call.by_name(), pairs_of(call.specialization), dict(call.options)


def pairs_of(specialization: Specialization) -> Pairs:
    """Type and key of each argument."""
    return list(zip(specialization.types, specialization.keys, strict=True))


def compute_cache_key(known: dict[Any, str], specialization: Sequence[tuple[Any, Any]], options: Any) -> str:
    """The text that stands for a variant of the device in use.

    Args:
        known: texts that were made before, which are reused and added to.
        specialization: type and key of each argument.
        options: complete, or as they were given: by name, or as attributes.
    """
    key = (repr(list(specialization)), completed(options).key())
    text = known.get(key)
    if text is None:
        text = known[key] = "|".join(key)
    return text


def completed(options: Any) -> Options:
    """Complete options of the device in use, from those that are given."""
    if isinstance(options, Options):
        return options
    given = options if isinstance(options, Mapping) else vars(options)
    known = {name: value for name, value in given.items() if name in OPTION_NAMES}
    return complete_options(known, driver.active.get_current_target())


def pack_args(
    names: Sequence[str], specialization: Sequence[tuple[Any, Any]]
) -> tuple[dict[str, Any], dict[tuple[int, ...], Any], dict[tuple[int, ...], list[list[Any]]]]:
    """Types by name, and constants and facts by path.

    Args:
        names: of the parameters.
        specialization: type and key of each.
    """
    types, keys = ([pair[part] for pair in specialization] for part in (0, 1))
    found = Specialization(tuple(names), tuple(types), tuple(keys))
    facts = {path: [["tt.divisibility", ALIGNMENT]] for _, path, kind, key in found.leaves() if _divisible(kind, key)}
    return dict(found.signature), dict(found.constants), facts


def _divisible(kind: Any, key: Any) -> bool:
    return kind != CONSTEXPR and isinstance(key, str) and key == DIVISIBLE
