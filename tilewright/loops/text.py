"""The nest of a kernel as text: one line a store, in names that do not depend on how the kernel is written.

    store arg2[arg4*i + j] = sum(k < arg5) arg0[arg5*i + k] * arg1[j + arg4*k]   for i < 64, j < 128

Factors, terms and conditions stand in the order of their texts; ranges are named where they first occur.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tilewright.loops.nest import (
    ALWAYS,
    Apply,
    Attributes,
    Below,
    Carried,
    Element,
    Every,
    Load,
    Named,
    Node,
    Number,
    Opaque,
    Parts,
    Poly,
    Range,
    Recurrence,
    Reduce,
    Select,
    Symbol,
    Tile,
    Unless,
    parts_of,
    range_of,
    ranges_of,
)
from tilewright.loops.products import Combination, Term, fingerprint, is_inverse, quotient
from tilewright.loops.statements import Branch, Loop, Statement, Store, Update, While, statements_of
from tilewright.ops.elementwise import AddFOp, AddIOp, DivSIOp
from tilewright.ops.function import FuncOp

_BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2}


def nest_of_module(module: ModuleOp) -> str:
    """The nests of all functions of a module, the kernel's first."""
    functions = sorted(FuncOp.all_of(module), key=lambda f: not f.is_kernel)
    return "\n".join(f"{function.symbol}\n" + nest_of(function) for function in functions)


def nest_of(function: FuncOp) -> str:
    """The nest of a function, a line for each store and for each loop that holds one."""
    return "".join(f"{line}\n" for line in _lines(statements_of(function), 1, {}))


def _lines(statements: Sequence[Statement], depth: int, names: dict[Range, str]) -> list[str]:
    out = []
    for statement in statements:
        head, *inside = _written(statement, depth, names)
        out += ["  " * depth + head, *inside]
    return out


def _written(statement: Statement, depth: int, names: dict[Range, str]) -> list[str]:
    """A statement as its own line and those of what it holds."""
    writer = Writer(names)
    if isinstance(statement, (Store, Update)):
        writer.share(statement.target, statement.value, statement.condition)
        left, right = writer.text(statement.target), writer.text(statement.value)
        where = writer.scope("for", statement.ranges) + writer.where(statement.condition)
        head = f"store {left} = {right}{where}"
        if isinstance(statement, Update):
            head = f"atomic {', '.join([statement.how, *_said(statement.attributes)])} {left} by {right}{where}"
        return [head, *["  " * (depth + 1) + f"where {text}" for text in writer.definitions]]
    if isinstance(statement, Loop):
        name = f"t{len(names)}"
        inside = _lines(statement.body, depth + 1, {**names, statement.iteration: name})
        head = f"for {name} < {writer.text(statement.iteration.extent)}"
        if statement.carried:
            head += "  carrying " + Writer({**names, statement.iteration: name}).parts(statement.carried)
        return [head, *inside]
    if isinstance(statement, Branch):
        out = [f"if {writer.text(statement.condition)}", *_lines(statement.then, depth + 1, names)]
        otherwise = _lines(statement.otherwise, depth + 1, names)
        return [*out, *(["  " * depth + "else", *otherwise] if otherwise else [])]
    if isinstance(statement, While):
        return ["while", *_lines(statement.body, depth + 1, names)]
    texts = [writer.text(operand) for operand in statement.operands]
    texts += _said(statement.attributes)
    return [f"{_short(type(statement.op))}({', '.join(texts)}){writer.scope('for', statement.ranges)}"]


class Writer:
    """Texts of expressions.

    Args:
        names: of ranges that have one.
    """

    def __init__(self, names: dict[Range, str]) -> None:
        self._names = dict(names)
        self._shared: set[Node] = set()
        self._known: dict[Node, str] = {}
        self.definitions: list[str] = []

    def share(self, *roots: object) -> None:
        """Write what is large and occurs more than once as a definition."""
        seen: set[object] = set()
        todo = list(roots)
        while todo:
            node = todo.pop()
            if isinstance(node, Node) and node in seen and _is_worth_a_name(node):
                self._shared.add(node)
            if isinstance(node, Node) and node in seen:
                continue
            seen.add(node)
            todo += parts_of(node)

    def text(self, node: object) -> str:
        """An expression; names the ranges in it."""
        if isinstance(node, Range):
            return self._name(node)
        if node not in self._shared:
            return self._written(node)
        assert isinstance(node, Node)
        found = self._known.get(node)
        if found is None:
            text = self._written(node)
            found = self._known[node] = f"u{len(self._known)}"
            self.definitions.append(f"{found} = {text}")
        return found

    def _written(self, node: object) -> str:
        method = _WRITERS.get(type(node))
        return method(self, node) if method is not None else str(node)

    def _name(self, r: Range) -> str:
        if r in self._names:
            return self._names[r]
        taken = sum(not name.startswith("t") for name in self._names.values())
        self._names[r] = "ijklmnopq"[taken] if taken < 9 else f"i{taken}"
        return self._names[r]

    def _key(self, node: object) -> tuple[str, tuple[str, ...]]:
        """An order that does not depend on names that are still to be given."""
        named = [self._names[r] for r in ranges_of(node) if r in self._names]
        return key_of(node), tuple(sorted(named))

    def ordered(self, nodes: Iterable[object]) -> list[str]:
        """Texts in an order that no spelling changes."""
        return [self.text(node) for node in sorted(nodes, key=self._key)]

    def scope(self, word: str, ranges: Sequence[Range]) -> str:
        """What ranges run to."""
        named = sorted((self.text(r), self.text(r.extent)) for r in ranges)
        return f"  {word} " + ", ".join(f"{name} < {extent}" for name, extent in named) if named else ""

    def where(self, condition: Every) -> str:
        """A condition behind what it holds for."""
        return "" if condition is ALWAYS else "  if " + self.text(condition)

    def _poly(self, poly: Poly) -> str:
        if not poly.key:
            return "0"
        parts = sorted(poly.key, key=lambda part: (-len(part[0]), -abs(part[1]), self._key_of_monomial(part[0])))
        texts = [self._monomial(monomial, coefficient) for monomial, coefficient in parts]
        return " + ".join(texts).replace("+ -", "- ")

    def _key_of_monomial(self, monomial: tuple[object, ...]) -> list[tuple[str, tuple[str, ...]]]:
        return sorted(self._key(atom) for atom in monomial)

    def _monomial(self, monomial: tuple[object, ...], coefficient: int) -> str:
        atoms = sorted(monomial, key=lambda atom: (isinstance(atom, Range), self._key(atom)))
        texts = [self.text(atom) for atom in atoms]
        if not texts:
            return str(coefficient)
        if coefficient != 1 or len(texts) > 1:
            texts = [f"({text})" if " // " in text and not text.endswith("]") else text for text in texts]
        sign = "" if coefficient == 1 else "-" if coefficient == -1 else f"{coefficient}*"
        return sign + "*".join(texts)

    def scopes(self, ranges: Sequence[Range]) -> list[tuple[str, str]]:
        """Names and extents of ranges."""
        return sorted((self.text(r), self.text(r.extent)) for r in ranges)

    def parts(self, parts: Parts) -> str:
        """What is carried from iteration to iteration."""
        texts = [
            f"#{n}[{', '.join(self.text(d) for d in dims)}] = {self.text(first)} then {self.text(following)}"
            for n, dims, first, following in parts
        ]
        return "; ".join(texts)


# --- kinds of nodes -----------------------------------------------------------------------------------------------


def _load(writer: Writer, load: Load) -> str:
    size = _BYTES.get(load.type, 1)
    offset = load.offset.divided(size)
    place = writer.text(offset) if offset is not None else f"byte {writer.text(load.offset)}"
    inside = "" if load.condition is ALWAYS else f" if {writer.text(load.condition)}"
    other = "" if load.other is None else f" else {writer.text(load.other)}"
    epoch = f"'{load.epoch}" if load.epoch else ""
    return f"{writer.text(load.base)}{epoch}[{place}{inside}{other}]"


def _below(writer: Writer, condition: Below) -> str:
    large = Poly.of_terms({m: -c for m, c in condition.poly.key if c < 0})
    small = Poly.of_terms({m: c for m, c in condition.poly.key if c > 0})
    return f"{writer.text(small)} < {writer.text(large)}"


def _every(writer: Writer, condition: Every) -> str:
    return " & ".join(writer.ordered(condition.parts)) or "always"


def _unless(writer: Writer, condition: Unless) -> str:
    return f"not ({writer.text(condition.conditions)})"


def _term(writer: Writer, term: Term) -> str:
    numerators, divisors = quotient(term)
    factors = writer.ordered(numerators)
    if term.coefficient != 1 or not factors:
        factors.insert(0, f"{term.coefficient:g}")
    return " / ".join([" * ".join(factors), *writer.ordered(divisors)])


def _combination(writer: Writer, node: Combination) -> str:
    word = "sum" if node.monoid in (AddFOp, AddIOp) else _short(node.monoid)
    texts = [_combined(writer, word, term) for term in sorted(node.terms, key=key_of)]
    if len(texts) == 1:
        return texts[0]
    return f"({' + '.join(texts)})" if word == "sum" else f"{word}({', '.join(texts)})"


def _combined(writer: Writer, word: str, term: Term) -> str:
    body = _term(writer, term)
    if not term.ranges:
        return body + (f" if {writer.text(term.condition)}" if term.condition is not ALWAYS else "")
    scope = ", ".join(f"{name} < {extent}" for name, extent in writer.scopes(term.ranges))
    where = f" if {writer.text(term.condition)}" if term.condition is not ALWAYS else ""
    how = "".join(f"; {text}" for text in _said(term.attributes))
    return f"{word}({scope}{where}{how}) {body}"


def _apply(writer: Writer, node: Apply) -> str:
    if node.op is DivSIOp:
        return f"({writer.text(node.operands[0])}) // {writer.text(node.operands[1])}"
    if is_inverse(node):
        return f"1 / {writer.text(node.operands[1])}"
    operands = [writer.text(operand) for operand in node.operands]
    return f"{_short(node.op)}({', '.join([*operands, *_said(node.attributes)])})"


def _select(writer: Writer, node: Select) -> str:
    return f"({writer.text(node.then)} if {writer.text(node.condition)} else {writer.text(node.otherwise)})"


def _reduce(writer: Writer, node: Reduce) -> str:
    first = "" if node.first is None else f"{writer.text(node.first)}, "
    return f"reduce({first}{writer.text(node.body)}{writer.scope('over', node.ranges)})"


def _recurrence(writer: Writer, node: Recurrence) -> str:
    place = ", ".join(writer.text(p) for p in node.index)
    extent = writer.text(node.iteration.extent)
    return f"#{node.number}[{place}] of carry({writer.text(node.iteration)} < {extent}: {writer.parts(node.parts)})"


def _opaque(writer: Writer, node: Opaque) -> str:
    operands = ", ".join([*(writer.text(o) for o in node.operands), *_said(node.attributes)])
    number = f".{node.number}" if node.number else ""
    place = ", ".join(writer.text(p) for p in node.index)
    return f"{_short(node.op)}({operands}){number}[{place}]"


def _tile(writer: Writer, node: Tile) -> str:
    dims = [range_of(dim) for dim in node.dims if dim.atoms]
    scope = ", ".join(f"{writer.text(r)} < {writer.text(r.extent)}" for r in dims)
    return f"[{writer.text(node.body)} for {scope}]" if dims else f"[{writer.text(node.body)}]"


def _element(writer: Writer, node: Element) -> str:
    return f"{writer.text(node.tile)}[{', '.join(writer.text(p) for p in node.index)}]"


def _carried(writer: Writer, node: Carried) -> str:
    return f"#{node.number}[{', '.join(writer.text(p) for p in node.index)}]"


def _said(attributes: Attributes) -> list[str]:
    return [f"{name}={value}" for name, value in attributes if value is not None and value is not False and value != ""]


def _short(op: type[Operation]) -> str:
    return op.name.split(".")[-1]


def _is_worth_a_name(node: Node) -> bool:
    if isinstance(node, Poly) and not any(isinstance(a, Symbol) and not isinstance(a.value, Named) for a in node.atoms):
        return False
    return isinstance(node, _SHARED) and len(key_of(node)) >= _LARGE


class _Keys(Writer):
    """Texts by which expressions are ordered, whatever ranges are called: of each a beginning, and its fingerprint."""

    def text(self, node: object) -> str:
        if not isinstance(node, (Node, Range)):
            return str(node)
        found = _KEYS.get(node)
        if found is None:
            text = "_" if isinstance(node, Range) else self._written(node)
            found = _KEYS[node] = text if len(text) < _LARGE else f"{text[:_LARGE]}{fingerprint(node) % 10**9}"
        return found


def key_of(node: object) -> str:
    """A text by which expressions are ordered."""
    return _KEYS_OF.text(node)


_LARGE = 60
_SHARED = (Poly, Combination, Apply, Select, Opaque, Recurrence, Element, Tile)
_KEYS: weakref.WeakKeyDictionary[Node | Range, str] = weakref.WeakKeyDictionary()
_KEYS_OF = _Keys({})
_WRITERS: dict[type, Callable[[Writer, Any], str]] = {
    Poly: Writer._poly,
    Symbol: lambda writer, node: writer.text(node.value),
    Named: lambda writer, node: node.name,
    Number: lambda writer, node: node.text,
    Load: _load,
    Below: _below,
    Every: _every,
    Unless: _unless,
    Combination: _combination,
    Term: _term,
    Apply: _apply,
    Select: _select,
    Reduce: _reduce,
    Recurrence: _recurrence,
    Opaque: _opaque,
    Tile: _tile,
    Element: _element,
    Carried: _carried,
}
