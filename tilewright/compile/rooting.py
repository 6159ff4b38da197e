"""Files of sources in what is kept of a kernel: by the name of a function in them, not by their path.

The same text gives the same kernel wherever its file lies, so what is kept on disk or comes from another process may
have been made of a file in another folder. Paths are put in when a kernel is taken from there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MARK = "\x1f"  # around names; no path has it
_NAMED = re.compile(f"{_MARK}([^{_MARK}]*){_MARK}")


def uprooted(facts: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """Facts about a kernel without paths of its sources and of Tilewright.

    Args:
        facts: texts, numbers, lists and dictionaries of these.
        files: paths by qualified names of functions in them.
    """
    names: dict[str, str] = {}
    for name, path in files.items():
        names.setdefault(path, name)  # the first function of a file stands for it
    longest = sorted(map(re.escape, names), key=len, reverse=True)
    whole = rf"(?<![\w./\\-])(?:({'|'.join(longest)})(?![\w.]*\w)|{re.escape(_OURS)})" if names else re.escape(_OURS)
    pattern = re.compile(whole)

    def named(found: re.Match[str]) -> str:
        return f"{_MARK}{names.get(found[0], '')}{_MARK}"

    return {name: _changed(value, lambda text: pattern.sub(named, text)) for name, value in facts.items()}


def rooted(facts: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """Facts from `uprooted`, with paths as they are here; a function that is not known here stands for its file."""

    def placed(found: re.Match[str]) -> str:
        return files.get(found[1], found[1]) if found[1] else _OURS

    return {name: _changed(value, lambda text: _NAMED.sub(placed, text)) for name, value in facts.items()}


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """A value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_changed(part, change) for part in value)
    if isinstance(value, dict):
        return {key: _changed(part, change) for key, part in value.items()}
    return value
