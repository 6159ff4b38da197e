"""The proof that results do not depend on a running maximum, by degrees.

In an online softmax every value is `exp(c·m) · v` or `a·m + v`, where m is the maximum and v does not depend on it:

    weights = exp(scores - new)                       c = -1
    total = total * exp(old - new) + weights.sum()    c = -1: rescaled from the old maximum to the new one
    out = acc / total                                 c = 0: it depends on no maximum
    lse = new + log(total)                            a = 1 - 1 = 0

What is stored must have degree 0. Then the derivative by m is 0 and need not be computed; where this is not shown,
there is no gradient but an error. The maximum before a pass and the one after it are two symbols, so that a sum that is
not rescaled, or is rescaled otherwise, is found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tilewright.hl import exc
from tilewright.hl.grad.maxima import running_maxima
from tilewright.hl.grad.program import captured
from tilewright.hl.graph.nodes import Node, Region, Value, operands, walk
from tilewright.hl.symbols import Sym

Symbol = tuple[int, str]


@dataclass(frozen=True)
class Degree:
    """How a value depends on maxima.

    Args:
        kind: "exp" for `exp(Σ c·m) · v`, "lin" for `Σ a·m + v`, "zero" for 0, "unknown" for anything else.
        of: c or a by symbol; empty where the value depends on no maximum.
        node: where the dependence got lost.
    """

    kind: str = "exp"
    of: tuple[tuple[Symbol, float], ...] = ()
    node: Node | None = field(default=None, compare=False)

    @property
    def is_free(self) -> bool:
        """Whether the value depends on no maximum."""
        return self.kind == "zero" or (self.kind != "unknown" and not self.of)

    def scaled(self, factor: float) -> Degree:
        return _degree(self.kind, {symbol: number * factor for symbol, number in self.of})

    def __add__(self, other: Degree) -> Degree:
        found = dict(self.of)
        for symbol, number in other.of:
            found[symbol] = found.get(symbol, 0.0) + number
        return _degree(self.kind, found)


def _degree(kind: str, of: dict[Symbol, float]) -> Degree:
    rounded = {symbol: round(number, 9) for symbol, number in of.items()}
    return Degree(kind, tuple(sorted((symbol, number) for symbol, number in rounded.items() if number)))


FREE, ZERO = Degree(), Degree("zero")
_VIEWS = "unsqueeze squeeze expand view _unsafe_view _reshape_alias permute transpose t _to_copy flatten"
_SAME = frozenset(_VIEWS.split())
_LINEAR = _SAME | {"sum", "neg"}
_EXTREMES = frozenset(("amax", "amin", "max", "min"))
_ZEROS = frozenset(("zeros", "zeros_like", "new_zeros"))
_LOGARITHMS = {"exp": 1.0, "exp2": math.log(2)}
_INVERSES = {"log": 1.0, "log2": math.log(2), "log10": math.log(10)}

Env = dict[int, Degree]


def check(region: Region) -> None:
    """Refuse a graph of which a result depends on a running maximum, as far as can be shown.

    Raises:
        DependsOnMaximum: with the line of the statement.
    """
    loops = [node for node in walk(region) if node.op == "loop" and not node.kwargs["axes"][0].top]
    if any(running_maxima(loop) for loop in loops):
        _Degrees().region(region.nodes, {})


def shifts(region: Region) -> list[Node]:
    """The maxima of tiles of which no result depends, as those that keep `exp` in its range: their derivatives add up
    to 0.

        largest = x.amax(1)
        loss = log(exp(x - largest).sum(1)) + largest
    """
    return [node for node in walk(region) if node.op in _EXTREMES and len(node.outs) == 1 and _cancels(region, node)]


def _cancels(region: Region, node: Node) -> bool:
    """Whether what is stored has degree 0 in an extreme."""
    try:
        _Degrees(node).region(region.nodes, {})
    except exc.DependsOnMaximum:
        return False
    return True


class _Degrees:
    """Finds degrees from the first node to the last.

    Args:
        extreme: a node whose result is a symbol as well.
    """

    def __init__(self, extreme: Node | None = None) -> None:
        self.extreme = extreme

    def region(self, nodes: list[Node], env: Env) -> None:
        """The degrees of what nodes compute; what they store must have degree 0."""
        for node in nodes:
            if node.op == "loop":
                self.loop(node, env)
            elif node.op == "if":
                self.branch(node, env)
            elif node.op == "store" or node.op.startswith("atomic"):
                for value in operands(node):
                    _require_free(env.get(value.id, FREE), node)
            else:
                found = self.of(node, env)
                env.update({out.id: found for out in node.outs})

    def branch(self, node: Node, env: Env) -> None:
        """Both arms must agree."""
        _require_free(env.get(node.args[0].id, FREE), node)
        found = []
        for region in node.regions:
            inner = dict(env)
            self.region(region.nodes, inner)
            found.append([inner.get(result.id, FREE) for result in region.results])
        for out, left, right in zip(node.outs, *found, strict=True):
            env[out.id] = _sum(left, right, node)

    def loop(self, node: Node, env: Env) -> None:
        """What a loop carries: sums that are rescaled from each maximum to the next."""
        (region,) = node.regions
        maxima = running_maxima(node)
        inits = [env.get(value.id, FREE) for value in (node.args[0] if node.args else [])]
        old = {at: (region.params[at].id, "before") for at in maxima}
        new = {at: (region.params[at].id, "after") for at in maxima}
        for at in maxima:
            if not _is_constant(inits[at]):
                raise _error(node, f"{region.params[at].name or 'a maximum'} does not begin with a constant")
        guess = [ZERO if init.kind == "zero" else FREE if init.is_free else init for init in inits]
        results = self._pass(region, env, guess, maxima, old, new)
        entering = [
            self._moved(result, new, old) if init.kind == "zero" else init
            for result, init in zip(results, guess, strict=True)
        ]
        results = self._pass(region, env, entering, maxima, old, new)
        for at, (result, before) in enumerate(zip(results, entering, strict=True)):
            same = self._moved(result, new, old) == before or result.kind == "zero"
            if at not in maxima and not same and not (result.is_free and before.is_free):
                name = region.params[at].name or "what the loop carries"
                raise _error(result.node or node, f"{name} is not rescaled from one maximum to the next")
        for at, (out, result) in enumerate(zip(node.outs, results, strict=True)):
            env[out.id] = Degree("lin", ((new[at], 1.0),)) if at in maxima else result

    def _pass(
        self, region: Region, env: Env, entering: list[Degree], maxima: dict[int, Value], old: Any, new: Any
    ) -> list[Degree]:
        inner = dict(env)
        for at, (param, degree) in enumerate(zip(region.params, entering, strict=True)):
            inner[param.id] = Degree("lin", ((old[at], 1.0),)) if at in maxima else degree
        settled = {result.id: Degree("lin", ((new[at], 1.0),)) for at, result in maxima.items()}
        for node in region.nodes:
            if node.outs and node.outs[0].id in settled:
                for value in operands(node):
                    degree = inner.get(value.id, FREE)
                    if not degree.is_free and value.id not in {param.id for param in region.params}:
                        raise _error(node, "a maximum is taken of what depends on it")
                inner[node.outs[0].id] = settled[node.outs[0].id]
            else:
                self.region([node], inner)
        return [inner.get(result.id, FREE) for result in region.results]

    def _moved(self, degree: Degree, new: dict[int, Symbol], old: dict[int, Symbol]) -> Degree:
        """A degree after a pass as the next one finds it."""
        back = {symbol: old[at] for at, symbol in new.items()}
        if any(symbol in old.values() for symbol, _ in degree.of):
            return Degree("unknown", (), degree.node)
        return Degree(degree.kind, tuple(sorted((back.get(symbol, symbol), number) for symbol, number in degree.of)))

    # --- operations -------------------------------------------------------------------------------------

    def of(self, node: Node, env: Env) -> Degree:
        """The degree of what a node computes."""
        if node.op in _ZEROS:
            return ZERO
        if node.op in ("full", "scalar_tensor", "full_like"):
            numbers = [arg for arg in node.args if _is_number(arg)]
            return ZERO if numbers[-1:] == [0] else Degree("exp", (), node)
        if node.op == "detach":  # PyTorch's factories end in one; what it is called on keeps its value
            return _operand(node.args[0], env)
        given = [_operand(arg, env) for arg in node.args]
        direct = {arg.id for arg in node.args if isinstance(arg, Value)}
        others = [value for value in (*operands(node), *captured(node)) if value.id not in direct]
        if not all(env.get(value.id, FREE).is_free for value in others):  # in lists, subscripts, functions
            return Degree("unknown", (), node)
        if node is self.extreme and all(degree.is_free for degree in given):
            return Degree("lin", (((node.out.id, "extreme"), 1.0),))
        if all(degree.is_free for degree in given):
            only = all(degree.kind == "zero" for degree in given if degree is not FREE)
            linear = node.op in _LINEAR or node.op == "mul"
            return ZERO if linear and given and given[0].kind == "zero" and only else FREE
        if any(degree.kind == "unknown" for degree in given):
            return next(degree for degree in given if degree.kind == "unknown")
        return self._dependent(node, given) or Degree("unknown", (), node)

    def _dependent(self, node: Node, given: list[Degree]) -> Degree | None:
        op, first = node.op, given[0] if given else FREE
        plain = not any(value not in (None, False) and key != "dtype" for key, value in node.kwargs.items())
        if op in _SAME:
            return first
        if op in ("sum", "neg"):
            return first if first.kind == "exp" else first.scaled(-1) if op == "neg" else None
        if op in _LOGARITHMS and _is_linear(first):
            return _degree("exp", dict(first.scaled(_LOGARITHMS[op]).of))
        if op in _INVERSES and first.kind == "exp":
            return _degree("lin", dict(first.scaled(1 / _INVERSES[op]).of))
        if op in ("add", "sub") and plain:
            return _sum(first, given[1] if op == "add" else _negated(given[1]), node)
        if op == "mul" and plain:
            return _times(node, given)
        if op == "div" and plain and given[1].kind in ("exp", "zero") and first.kind in ("exp", "zero"):
            return ZERO if first.kind == "zero" else first + given[1].scaled(-1)
        if op == "div" and _is_number(node.args[1]) and first.kind == "lin":
            return first.scaled(1 / node.args[1])
        if op == "where" and given[0].is_free:
            return _sum(given[1], given[2], node)
        if op == "product":
            return self._product(node, given)
        return None

    def _product(self, node: Node, given: list[Degree]) -> Degree | None:
        a, b = given[:2]
        if not {a.kind, b.kind} <= {"exp", "zero"}:
            return None
        made = ZERO if "zero" in (a.kind, b.kind) else a + b
        return made if node.args[2] is None else _sum(made, given[2], node)


def _is_number(arg: Any) -> bool:
    """Whether it is a number that is known: sizes, places and numbers of the launch are integers, too."""
    return isinstance(arg, int | float) and not isinstance(arg, bool | Sym)


def _operand(arg: Any, env: Env) -> Degree:
    if isinstance(arg, Value):
        return env.get(arg.id, FREE)
    return ZERO if _is_number(arg) and arg == 0 else FREE


def _is_constant(degree: Degree) -> bool:
    return degree.kind == "zero" or (degree.is_free and degree.node is not None)


def _is_linear(degree: Degree) -> bool:
    return degree.kind == "lin" or degree.is_free


def _negated(degree: Degree) -> Degree:
    return degree.scaled(-1) if degree.kind == "lin" else degree


def _sum(left: Degree, right: Degree, node: Node) -> Degree:
    """Terms must have one degree; those of `a·m + v` add up."""
    if left.kind == "zero" or right.kind == "zero":
        other = right if left.kind == "zero" else left
        return other if other.kind != "unknown" else Degree("unknown", (), node)
    if "unknown" in (left.kind, right.kind):
        return Degree("unknown", (), node)
    if node.op in ("add", "sub") and _is_linear(left) and _is_linear(right):
        return _degree("lin", dict((Degree("lin", left.of) + Degree("lin", right.of)).of))
    same = left.of == right.of and (left.kind == right.kind or not left.of)
    return left if same else Degree("unknown", (), node)


def _times(node: Node, given: list[Degree]) -> Degree | None:
    left, right = given
    if "zero" in (left.kind, right.kind):
        return ZERO
    numbers = [arg for arg in node.args if _is_number(arg)]
    linear = next((one for one in (left, right) if one.kind == "lin" and one.of), None)
    if linear is not None:
        return linear.scaled(float(numbers[0])) if len(numbers) == 1 else None
    return _degree("exp", dict((Degree("exp", left.of) + Degree("exp", right.of)).of))


def _require_free(degree: Degree, node: Node) -> None:
    if not degree.is_free:
        raise _error(
            degree.node or node, "what is stored depends on a running maximum otherwise than by a shift that cancels"
        )


def _error(node: Node, message: str) -> exc.DependsOnMaximum:
    error = exc.DependsOnMaximum(
        f"{message}: the gradient through the maximum is not derived",
        hint="rescale each sum by exp(old - new), and divide by such a sum or add its log; or compute the maximum in a "
        "kernel of its own",
    )
    error.line = node.line
    return error
