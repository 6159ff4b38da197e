"""`match` on compile-time values: the first case that fits is compiled, the others are not looked at.

Patterns are constants, names, `|`, `_`, sequences with a star, and classes; a guard must be a compile-time
value too.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import Any

from tilewright.frontend.control import truth
from tilewright.frontend.expressions import attribute, compare, wrap
from tilewright.frontend.frame import Frame, visit, visit_all, visits
from tilewright.frontend.structure import type_text
from tilewright.ops.values import tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple


@visits(ast.Match)
def _match(frame: Frame, node: ast.Match) -> bool:
    subject = visit(frame, node.subject)
    for case in node.cases:
        found: dict[str, Any] = {}
        if not _fits(frame, case.pattern, subject, found):
            continue
        for name, value in found.items():
            frame.scope.bind(name, value)
        if case.guard is not None:
            flag = truth(frame, case.guard, visit(frame, case.guard))
            if isinstance(flag, tensor):
                raise frame.error(
                    case.guard,
                    "the guard of a `case` must be a compile-time value",
                    "write if/elif/else: a run-time condition cannot choose among cases",
                )
            if not flag:
                continue
        return visit_all(frame, case.body)
    return False


def _fits(frame: Frame, pattern: ast.pattern, value: Any, found: dict[str, Any]) -> bool:
    """Whether `pattern` matches; captured names go into `found`."""
    if isinstance(pattern, ast.MatchAs):
        if pattern.pattern is not None and not _fits(frame, pattern.pattern, value, found):
            return False
        if pattern.name is not None:
            found[pattern.name] = value
        return True
    if isinstance(pattern, ast.MatchOr):
        return any(_fits(frame, part, value, found) for part in pattern.patterns)
    if isinstance(pattern, ast.MatchSequence):
        parts = wrap(unwrap(value)) if not isinstance(value, builtins.tuple) else value
        return isinstance(parts, builtins.tuple) and _fits_sequence(frame, pattern.patterns, parts, found)
    if isinstance(pattern, ast.MatchClass):
        return _fits_class(frame, pattern, value, found)
    if isinstance(pattern, (ast.MatchValue, ast.MatchSingleton)):
        if isinstance(value, tensor):
            raise frame.error(
                pattern,
                f"`match` compares compile-time values, not {type_text(value)}",
                "write if/elif/else on a run-time value",
            )
        if isinstance(pattern, ast.MatchSingleton):
            return unwrap(value) is pattern.value
        return bool(unwrap(compare(frame, pattern, ast.Eq(), value, visit(frame, pattern.value))))
    raise frame.unsupported(pattern, f"unsupported pattern: {type(pattern).__name__}", hint="write if/elif/else")


def _fits_sequence(frame: Frame, patterns: Sequence[ast.pattern], parts: Sequence[Any], found: dict[str, Any]) -> bool:
    star = next((n for n, p in enumerate(patterns) if isinstance(p, ast.MatchStar)), None)
    if star is None:
        return len(parts) == len(patterns) and all(
            _fits(frame, p, v, found) for p, v in zip(patterns, parts, strict=True)
        )
    after = len(patterns) - star - 1
    if len(parts) < star + after:
        return False
    end = len(parts) - after
    rest = patterns[star]
    assert isinstance(rest, ast.MatchStar)
    if rest.name is not None:
        found[rest.name] = tile_tuple(parts[star:end])
    pairs = [*zip(patterns[:star], parts[:star], strict=True), *zip(patterns[star + 1 :], parts[end:], strict=True)]
    return all(_fits(frame, p, v, found) for p, v in pairs)


def _fits_class(frame: Frame, pattern: ast.MatchClass, value: Any, found: dict[str, Any]) -> bool:
    cls = unwrap(visit(frame, pattern.cls))
    held = value if isinstance(value, builtins.tuple) else unwrap(value)
    if not isinstance(cls, type) or not isinstance(held, cls):
        return False
    names = [*getattr(cls, "__match_args__", ())[: len(pattern.patterns)], *pattern.kwd_attrs]
    patterns = [*pattern.patterns, *pattern.kwd_patterns]
    if cls in (bool, int, float, str) and pattern.patterns:
        return _fits(frame, pattern.patterns[0], wrap(held), found)
    if len(names) != len(patterns):
        raise frame.error(pattern, f"{cls.__name__}() accepts {len(names)} positional sub-patterns")
    fields = [attribute(frame, pattern, value, name) for name in names if hasattr(held, name)]
    return len(fields) == len(names) and all(_fits(frame, p, v, found) for p, v in zip(patterns, fields, strict=True))
