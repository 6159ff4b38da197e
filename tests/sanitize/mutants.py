"""Kernels of the corpus with a mistake put in by a rule: what people do wrong, at every place where it can be done.

A mutant is the text of a file of the corpus with one change in the tree of one kernel, or of the grid of its launch.
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

CORPUS = Path(__file__).parents[1] / "corpus"
_NO_CASES = frozenset({"case", "every", "test_corpus", "forward_only", "__init__"})
_ACCESSES = frozenset({"load", "store", "atomic_add", "atomic_max", "atomic_min"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed file of the corpus.

    Args:
        rule: what kind of mistake.
        file: name of the file.
        kernel: that was changed, or whose launch was.
        case: name of a case that launches it.
        change: the expression before and after.
        number: of the changed node in the function.
    """

    rule: str
    file: str
    kernel: str
    case: str
    change: str
    number: int

    def text(self, mark: str = "") -> str:
        """The changed file; names of kernels end in `mark`."""
        tree = _tree(self.file)
        at, function = next((at, node) for at, node in _functions(tree) if node.name == self.kernel)
        body = copy.deepcopy(function)
        old = list(ast.walk(body))[self.number]
        new = _RULES[self.rule](copy.deepcopy(old))
        if self.rule == "int32 product":
            tree = _WithoutCasts().visit(copy.deepcopy(tree))

        class Put(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> ast.AST:
                return new if node is old and new is not None else self.generic_visit(node)

        changed = ast.Module([*tree.body[:at], Put().visit(body), *tree.body[at + 1 :]], [])
        return ast.unparse(ast.fix_missing_locations(_marked(changed, mark)))


def _marked(module: ast.Module, mark: str) -> ast.Module:
    if not mark:
        return module
    module = copy.deepcopy(module)
    kernels = {node.name for _, node in _functions(module) if "jit" in " ".join(map(ast.unparse, node.decorator_list))}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name in kernels:
            node.name += mark
        elif isinstance(node, ast.Name) and node.id in kernels:
            node.id += mark
    return module


@functools.cache
def _tree(file: str) -> ast.Module:
    return ast.parse((CORPUS / f"{file}.py").read_text())


def _functions(tree: ast.Module) -> list[tuple[int, ast.FunctionDef]]:
    return [(at, node) for at, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef)]


Rule = Callable[[ast.AST], ast.AST | None]


def _function_of(node: ast.AST) -> str:
    """`f` of a call `tl.f(...)`; else ""."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return node.func.attr if node.func.value.id == "tl" else ""
    return ""


def _changed(node: ast.AST, text: str) -> ast.expr:
    made = ast.parse(text, mode="eval").body
    return ast.copy_location(made, node)


def dropped_mask(node: ast.AST) -> ast.AST | None:
    """`tl.load(p, mask=m, other=0)` → `tl.load(p)`."""
    name = _function_of(node)
    if name not in _ACCESSES:
        return None
    assert isinstance(node, ast.Call)
    needed = 1 if name == "load" else 2
    rest = [keyword for keyword in node.keywords if keyword.arg not in ("mask", "other")]
    if len(node.args) <= needed and len(rest) == len(node.keywords):
        return None
    return ast.Call(node.func, node.args[:needed], rest)


def bound_off_by_one(node: ast.AST) -> ast.AST | None:
    """`i < n` → `i < n + 1`."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
        return _changed(node, f"{ast.unparse(node.left)} < {ast.unparse(node.comparators[0])} + 1")
    return None


def address_off_by_one(node: ast.AST) -> ast.AST | None:
    """`tl.load(p + i)` → `tl.load(p + i + 1)`."""
    if _function_of(node) not in _ACCESSES:
        return None
    assert isinstance(node, ast.Call)
    if not isinstance(node.args[0], ast.BinOp):
        return None
    return ast.Call(node.func, [_changed(node, f"{ast.unparse(node.args[0])} + 1"), *node.args[1:]], node.keywords)


def swapped_stride(node: ast.AST) -> ast.AST | None:
    """`row * stride + column` → `row + column * stride`."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
        return None
    left, right = node.left, node.right
    if not (isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mult)) or isinstance(right, ast.Constant):
        return None
    row, stride, column = (ast.unparse(part) for part in (left.left, left.right, right))
    return _changed(node, f"({row}) + ({column}) * ({stride})")


def missing_atomic(node: ast.AST) -> ast.AST | None:
    """`tl.atomic_add(p, v, m)` → `tl.store(p, tl.load(p, m) + v, m)`."""
    if not isinstance(node, ast.Expr) or _function_of(node.value) != "atomic_add":
        return None
    call = node.value
    assert isinstance(call, ast.Call)
    masks = [*call.args[2:3], *[keyword.value for keyword in call.keywords if keyword.arg == "mask"]]
    mask = f", {ast.unparse(masks[0])}" if masks else ""
    place, value = (ast.unparse(part) for part in call.args[:2])
    return ast.Expr(_changed(node, f"tl.store({place}, tl.load({place}{mask}) + {value}{mask})"))


def halved_program(node: ast.AST) -> ast.AST | None:
    """`tl.program_id(0)` → `tl.program_id(0) // 2`."""
    return _changed(node, f"({ast.unparse(node)} // 2)") if _function_of(node) == "program_id" else None


def next_program(node: ast.AST) -> ast.AST | None:
    """`tl.program_id(0)` → `tl.program_id(0) + 1`."""
    return _changed(node, f"({ast.unparse(node)} + 1)") if _function_of(node) == "program_id" else None


def _count(node: ast.AST, by: int) -> ast.AST | None:
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("cdiv"):
        return _changed(node, f"max(1, {ast.unparse(node)} {'+' if by > 0 else '-'} 1)")
    return None


def larger_grid(node: ast.AST) -> ast.AST | None:
    """`cdiv(n, B)` programs → one more."""
    return _count(node, 1)


def smaller_grid(node: ast.AST) -> ast.AST | None:
    """`cdiv(n, B)` programs → one fewer."""
    return _count(node, -1)


def int32_product(node: ast.AST) -> ast.AST | None:
    """`new.normal(m, n)` → the same with rows so far apart that `row * stride` has no room in 32 bits.

    The kernels of the file lose their casts to 64 bits with it.
    """
    made = ast.unparse(node) if isinstance(node, ast.Call) else ""
    return _changed(node, f"far_apart({made})") if made.startswith(("new.normal(", "new.uniform(")) else None


class _WithoutCasts(ast.NodeTransformer):
    """`i.to(tl.int64)` → `i`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        to_64_bits = [ast.unparse(argument) for argument in node.args] == ["tl.int64"]
        return node.func.value if to_64_bits and isinstance(node.func, ast.Attribute) else node


def far_apart(x: torch.Tensor) -> torch.Tensor:
    """A tensor whose last row begins behind element 2 ** 31; nothing between the rows is touched."""
    rows = x.shape[0] - 1
    if rows < 2 or x.dim() < 2:  # such a stride would have 64 bits
        return x
    pitch = -(-(1 << 31) // rows // 16) * 16 + 16
    return torch.empty_strided(x.shape, (pitch, *x.stride()[1:]), dtype=x.dtype, device=x.device).copy_(x)


KERNEL_RULES: tuple[Rule, ...] = (
    dropped_mask, bound_off_by_one, address_off_by_one, swapped_stride, missing_atomic, halved_program, next_program,
)  # fmt: skip
GRID_RULES: tuple[Rule, ...] = (larger_grid, smaller_grid)
SIZE_RULES: tuple[Rule, ...] = (int32_product,)


_RULES = {rule.__name__.replace("_", " "): rule for rule in (*KERNEL_RULES, *GRID_RULES, *SIZE_RULES)}


def every_mutant() -> Iterator[Mutant]:
    """All mutants of all kernels that a case launches by name."""
    files = [path.stem for path in sorted(CORPUS.glob("*.py")) if path.stem not in _NO_CASES]
    for of_kernel, of_case in ((KERNEL_RULES, GRID_RULES), ((), SIZE_RULES)):
        for file in files:
            yield from _of_file(file, of_kernel, of_case)


def _of_file(file: str, of_kernel: tuple[Rule, ...], of_case: tuple[Rule, ...]) -> Iterator[Mutant]:
    functions = [node for _, node in _functions(_tree(file))]
    decorated = {node.name: " ".join(map(ast.unparse, node.decorator_list)) for node in functions}
    cases = {node.name: ast.unparse(node) for node in functions if "case(" in decorated[node.name]}
    for node in functions:
        if "jit" in decorated[node.name]:
            case = next((name for name, text in cases.items() if f"{node.name}[" in text), None)
            if case is not None:
                yield from _changes(node, of_kernel, file, case)
        elif node.name in cases:
            yield from _changes(node, of_case, file, node.name)


def _changes(function: ast.FunctionDef, rules: tuple[Rule, ...], file: str, case: str) -> Iterator[Mutant]:
    """One mutant for every rule and every place in a function where it applies."""
    for number, node in enumerate(ast.walk(function)):
        for rule in rules:
            new = rule(copy.deepcopy(node))
            if new is not None:
                change = f"{ast.unparse(node)} -> {ast.unparse(ast.fix_missing_locations(new))}"
                yield Mutant(rule.__name__.replace("_", " "), file, function.name, case, change, number)
