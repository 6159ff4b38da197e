"""What a launch with checks looks for, by name: the option `sanitize` and the knob of that name."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.base.errors import ArgumentError

BOUNDS, RACES, OVERFLOW, UNINITIALISED = "bounds", "races", "overflow", "uninitialised"
HINTS, DEADLOCKS, VIEWS, PORTABLE, NAN = "hints", "deadlocks", "views", "portable", "nan"
ORDERS = "orders"
ALL = (BOUNDS, RACES, OVERFLOW, UNINITIALISED, HINTS, DEADLOCKS)
"""What "all" means: what is wrong with any program."""
EVERY = (*ALL, VIEWS, PORTABLE, NAN, ORDERS)
"""These and what is looked for where it is asked for by name: right programs may do it."""
USUAL = (BOUNDS, RACES, DEADLOCKS)
"""What `sanitize=True` means."""
_BRING_BOUNDS = frozenset({RACES, UNINITIALISED, VIEWS, PORTABLE})  # they keep words beside each element

Checks = tuple[str, ...]


def parse_checks(wanted: bool | str | Iterable[str] | None) -> Checks:
    """Names of checks in their order, each once.

    Args:
        wanted: True for bounds and races, None or False for nothing, else names: "bounds,races", or "all", which may
            stand beside others ("all,nan").

    Raises:
        ArgumentError: there is no such check.
    """
    if not isinstance(wanted, str) and (wanted is None or isinstance(wanted, bool)):
        return USUAL if wanted else ()
    names = {name.strip() for name in (wanted.split(",") if isinstance(wanted, str) else wanted)} - {""}
    if names in ({"1"}, {"true"}):
        return USUAL
    if names in ({"0"}, {"false"}):
        return ()
    if "all" in names:
        names = (names - {"all"}) | set(ALL)
    for name in sorted(names - set(EVERY)):
        raise ArgumentError(f"there is no check {name!r}", hint=f"the checks are {', '.join(EVERY)}, and all")
    if ORDERS in names:
        names.add(RACES)
    if names & _BRING_BOUNDS:  # an access has to stay inside
        names.add(BOUNDS)
    return tuple(name for name in EVERY if name in names)
