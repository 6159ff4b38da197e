"""The module that a configuration makes: imports, one kernel per top-level loop, and the host function."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import syntax
from tilewright.hl import exc
from tilewright.hl.constexpr import ConstExpr
from tilewright.hl.emit.carry import count_readers
from tilewright.hl.emit.grid import grid_head, grid_text
from tilewright.hl.emit.imports import imports
from tilewright.hl.emit.kernel import Kernel
from tilewright.hl.emit.lines import Line, Lines
from tilewright.hl.emit.loops import emit_body, emit_region
from tilewright.hl.graph.nodes import Graph, Region
from tilewright.hl.passes.decide import Decision
from tilewright.hl.passes.pipeline import prepare
from tilewright.hl.passes.races import warn_of_races
from tilewright.hl.symbols import ConfiguredTruth, cdiv, next_power_of_2, substitute, text
from tilewright.hl.trace.host import Traced

_HEAD = ("import torch", "import tilewright", "import tilewright.language as tl")

_NUM_SM = """

def get_num_sm(device):
    return torch.cuda.get_device_properties(device).multi_processor_count
"""

_LAUNCH = ("num_warps", "num_stages", "maxnreg", "num_threads")  # choices that are options of a launch


@dataclass(frozen=True)
class Module:
    """Generated code.

    Args:
        text: the module.
        origins: for each line, the line of the user's file that it came from, 0 for none.
    """

    text: str
    origins: tuple[int, ...]


def emit_module(
    traced: Traced,
    decision: Decision,
    comments: bool = True,
    around: Callable[[int, str], str] | None = None,
    prefix: str = "",
) -> Module:
    """The module for one configuration.

    Args:
        traced: the graphs.
        decision: the configuration.
        comments: whether the user's lines stand above those that were made of them.
        around: makes of the number of a top-level loop and its launch what the host does in the place of the loop.
        prefix: of the names of kernels, before their number; "" for that of the function.
    """
    name = traced.source.tree.name
    lines = [Line(text) for text in _HEAD]
    launches: dict[int, str] = {}
    kernels: list[Line] = []
    for at, graph in enumerate(traced.graphs):
        decision.graph = at
        made, launch = _kernel(f"{prefix or f'_{name}'}_{at}", graph, decision, traced)
        kernels += [Line(""), Line(""), *made]
        launches[graph.line] = launch if around is None else around(at, launch)
    if any("libdevice." in line.text for line in kernels):
        lines.append(Line("from tilewright.language.extra import libdevice"))
    if _hides_min(traced):
        launches = {at: re.sub(r"(?<![\w.])min\(", "builtins.min(", launch) for at, launch in launches.items()}
        lines.append(Line("import builtins"))
    if any("get_num_sm(" in launch for launch in launches.values()):
        text = _NUM_SM if decision.portable else "from tilewright.hl.tune.machine import get_num_sm"
        lines += [Line(line) for line in text.splitlines()]
    host = _host(traced, launches, decision)
    text = "\n".join(line.text for line in host)
    lines += [Line(line) for line in imports(text, traced.scope, traced.captured)]
    reason = [Line(f"# {traced.why_constant}")] if traced.why_constant else []
    lines += [*kernels, Line(""), Line(""), *reason, *host]
    lines = [line for line in lines if comments or not line.text.lstrip().startswith("# ")]
    if decision.portable:
        lines = [Line(_of_triton(line.text), line.origin) for line in lines]
    return Module("\n".join(line.text for line in lines) + "\n", tuple(line.origin for line in lines))


def _hides_min(traced: Traced) -> bool:
    """Whether `min`, which launches of persistent programs call, is something else in the user's function."""
    nodes = list(ast.walk(traced.source.tree))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return "min" in own or traced.scope.get("min", min) is not min


def _of_triton(text: str) -> str:
    """A line with Triton's names, which are ours under another name.

    Raises:
        UnsupportedOperation: the host code uses names that Triton does not have.
    """
    if re.search(r"(?<!\w)(from|import) tilewright\.hl", text):
        raise exc.UnsupportedOperation(
            f"portable text of host code that needs `{text.strip()}`", hint="compute that before the kernel is called"
        )
    return text if text.lstrip().startswith("#") else re.sub(r"(?<![\w.])tilewright(?=[. ]|$)", "triton", text)


def _kernel(name: str, graph: Graph, decision: Decision, traced: Traced) -> tuple[list[Line], str]:
    """(lines of a kernel, the statement that launches it)."""
    kernel = Kernel(name, decision)
    if not issubclass(exc.OverwrittenStore, tuple(traced.ignored)):
        warn_of_races(graph, decision, traced.source.file)
    region = prepare(graph, decision)
    kernel.readers = count_readers(region)
    loop = region.nodes[-1]
    axes = loop.kwargs["axes"]
    kernel.lines.origin = graph.line
    with kernel.lines.indented():
        head = kernel.lines.here()
        emit_region(kernel, Region(nodes=region.nodes[:-1]))
        with grid_head(kernel, axes):
            emit_body(kernel, axes, loop.regions[0])
        kernel.lines.origin = graph.line
        kernel.lines.insert(head, kernel.head)
    grid = grid_text(kernel, axes)
    constants = {text: f"tilewright.next_power_of_2({atom.text})" for atom, text in decision.padded.items()}
    used = "\n".join(line.text for line in kernel.lines.lines)
    constants = {text: value for text, value in constants.items() if text in used}
    tensors = {parameter: tensor.text for parameter, tensor in kernel.tensors.items()}
    parameters = [*tensors, *kernel.scalars, *(f"{text}: tl.constexpr" for text in constants)]
    arguments = [*tensors.values(), *kernel.scalars.values(), *constants.values()]
    signature = f"def {name}({', '.join(parameters)}):"
    lines = [line for function in kernel.functions for line in (*function, Line(""), Line(""))]
    lines += [Line("@tilewright.jit", graph.line), Line(signature, graph.line)]
    lines += _commented(kernel.lines.lines, traced)
    chosen = {key: decision.option(key) for key in _LAUNCH if not (decision.portable and key == "num_threads")}
    options = [f"{key}={value}" for key, value in chosen.items() if value is not None]
    return lines, f"{name}[{grid}]({', '.join([*arguments, *options])})"


def _commented(lines: list[Line], traced: Traced) -> list[Line]:
    """`lines` with the user's line as a comment above those that came from it."""
    made, last = [], 0
    for line in lines:
        if line.origin != last and line.origin:
            indent = line.text[: len(line.text) - len(line.text.lstrip())]
            made.append(Line(f"{indent}# {traced.source.line(line.origin)}", line.origin))
            last = line.origin
        made.append(line)
    return made


# --- host ------------------------------------------------------------------------------------------------


class _Launcher(ast.NodeTransformer):
    """The user's function with launches in the place of its loops."""

    def __init__(self, traced: Traced, launches: dict[int, str], decision: Decision) -> None:
        self.traced, self.launches, self.decision = traced, launches, decision
        self.changed = False

    def lines_of(self, statement: ast.stmt) -> tuple[list[str], bool]:
        """(the lines that a statement of the host becomes, whether the function ends with it).

        What no configuration changes is kept: of most kernels that is all but the loops.
        """
        kept = self.traced.kept
        place = statement.lineno, statement.col_offset
        if not self.decision.portable and place in kept:
            return kept[place], isinstance(statement, ast.Return)
        launched = isinstance(statement, ast.For) and statement.lineno in self.launches  # nothing of it is left
        self.changed = False
        visited = self.visit(statement if launched else _copied(statement))
        made = visited if isinstance(visited, list) else [visited]
        lines = "\n".join(map(ast.unparse, made)).splitlines()
        if not self.changed:
            kept[place] = lines
        return lines, any(isinstance(one, ast.Return) for one in made)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        place = node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
        if place in self.traced.read:
            self.changed = True
            target = ast.Name(self.traced.read[place], ast.Store())
            return ast.copy_location(ast.NamedExpr(target, node), node)
        named = self._named(node.func)
        if named is ConstExpr and (marked := [*node.args, *(word.value for word in node.keywords)]):
            self.changed = True
            argument: ast.AST = self.visit(marked[0])
            return argument
        replaced = named if self.decision.portable else None
        if replaced is cdiv or replaced is next_power_of_2:
            self.changed = True
            node.func = syntax.parse(f"tilewright.{replaced.__name__}", mode="eval").body
        if (
            getattr(named, "host_constant", False) and place in self.traced.constants
        ):  # else in an arm that is not taken
            self.changed = True
            value = self._constant(self.traced.constants[place])
            return ast.copy_location(syntax.parse(value, mode="eval").body, node)
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Call) and self._marked(node.value.func, "host_nothing"):
            self.changed = True
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def _constant(self, value: object) -> str:
        if isinstance(value, tuple):
            return f"({', '.join(map(self._constant, value))},)"
        if isinstance(value, ConfiguredTruth):
            return f"({self._constant(value.left)} {value.op} {self._constant(value.right)})"
        return text(substitute(value, self.decision.number), lambda atom: atom.text)

    def _marked(self, function: ast.expr, mark: str) -> bool:
        """Whether an expression names a function of the language with this attribute."""
        return bool(getattr(self._named(function), mark, False))

    def _named(self, function: ast.expr) -> Any:
        """What an expression of the host names in the user's module; None if nothing."""
        if not isinstance(function, ast.Name | ast.Attribute):
            return None
        try:
            return eval(ast.unparse(function), dict(self.traced.scope))
        except (NameError, AttributeError):
            return None

    def visit_For(self, node: ast.For) -> ast.AST:
        launch = self.launches.get(node.lineno)
        if launch is None:
            return self.generic_visit(node)
        self.changed = True
        return ast.copy_location(syntax.parse(launch).body[0], node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        arm = self.traced.folded.get(node.lineno)
        if arm is None:
            return self.generic_visit(node)
        self.changed = True
        made: list[ast.stmt] = []
        for statement in arm:
            visited = self.visit(_copied(statement))
            made += visited if isinstance(visited, list) else [visited]
        return made


def _copied(node: Any) -> Any:
    """A statement's tree once more; `copy.deepcopy` takes five times as long."""
    if isinstance(node, ast.AST):
        made = type(node)()
        made.__dict__.update((name, _copied(value)) for name, value in node.__dict__.items())
        return made
    return [_copied(item) for item in node] if isinstance(node, list) else node


def _host(traced: Traced, launches: dict[int, str], decision: Decision) -> list[Line]:
    tree = traced.source.tree
    launcher = _Launcher(traced, launches, decision)
    lines = Lines()
    parameters = ast.unparse(_without_annotations(tree.args))
    lines.write(f"def {tree.name}({parameters}):")
    with lines.indented():
        for statement in tree.body:
            lines.origin = statement.lineno
            texts, last = launcher.lines_of(statement)
            for text in texts:
                lines.write(text)
            if last:
                break
    return lines.lines


def _without_annotations(arguments: ast.arguments) -> ast.arguments:
    bare = [ast.arg(argument.arg) for argument in arguments.args]
    return ast.arguments([], bare, None, [], [], None, arguments.defaults)
