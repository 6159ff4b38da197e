"""What a launch with checks looks for, by name: the option `sanitize` and the knob of that name."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.base.errors import ArgumentError

BOUNDS, RACES, OVERFLOW, UNINITIALISED = "bounds", "races", "overflow", "uninitialised"
ALL = (BOUNDS, RACES, OVERFLOW, UNINITIALISED)
USUAL = (BOUNDS, RACES)
"""What `sanitize=True` means."""

Checks = tuple[str, ...]


def parse_checks(wanted: bool | str | Iterable[str] | None) -> Checks:
    """Names of checks in their order, each once.

    Args:
        wanted: True for bounds and races, None or False for nothing, else names: "bounds,races", or "all".

    Raises:
        ArgumentError: there is no such check.
    """
    if not isinstance(wanted, str) and (wanted is None or isinstance(wanted, bool)):
        return USUAL if wanted else ()
    names = [name.strip() for name in (wanted.split(",") if isinstance(wanted, str) else wanted)]
    if names in (["1"], ["true"]):
        return USUAL
    if names in (["0"], ["false"]):
        return ()
    if names == ["all"]:
        return ALL
    for name in filter(None, names):
        if name not in ALL:
            raise ArgumentError(f"there is no check {name!r}", hint=f"the checks are {', '.join(ALL)}")
    if RACES in names or UNINITIALISED in names:  # which keep words beside each element: an access has to stay inside
        names.append(BOUNDS)
    return tuple(name for name in ALL if name in names)
