"""The interpreter of statements: control flow is ours, expressions and simple statements are Python's."""

from __future__ import annotations

import ast
import dis
from collections.abc import Callable
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.graph.nodes import Region
from tilewright.hl.symbols import ChosenLater, ConfiguredTruth, Sym
from tilewright.hl.trace import kept
from tilewright.hl.trace.equal import equate_in
from tilewright.hl.trace.messages import hint, like_attribute, named, translate
from tilewright.hl.trace.source import Body, Source
from tilewright.hl.trace.state import Trace
from tilewright.hl.trace.tiles import Range

_TORCH_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


_WHOLE: dict[type[ast.stmt], str] = {  # statements of the host that the launcher has as they stand, and what to write
    ast.While: "call the kernel once per round instead",
    ast.Try: "put it around the call of the kernel",
    ast.With: "put it around the call of the kernel",
    ast.Match: "write `if` and `elif`",
}


def _is_of_numpy(error: BaseException) -> bool:
    """Whether a function of NumPy is on the way to an error."""
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "numpy":
            return True
        step = step.tb_next
    return False


def _asks_for_values(error: Exception) -> bool:
    """Whether torch says that a tensor has no memory: `x.tolist()`, or a size that values decide, `x.unique()`."""
    text = str(error)
    if "meta tensor" in text:
        return True
    return isinstance(error, NotImplementedError) and ("Meta tensors" in text or "register_meta" in text)


class Left(Exception):
    """`return` of the host: what follows does not run."""


class Interpreter:
    """Runs the statements of one kernel for a trace.

    Args:
        trace: where the work is written down.
        source: the kernel's text.
        scope: names of the module and, as statements assign them, of the function.

    Attributes:
        device_names: variables that existed only inside a loop that has ended.
        one_arm: variables that only one arm of a branch assigned.
        in_passes: variables that only the passes of an inner loop assigned.
        carrying: paths of what the open loops carry.
        decided: how many of the open branches and loops run only where values of tiles say so.
        folded: lines of host `if` statements that hold loops, with the arm that was taken.
    """

    def __init__(self, trace: Trace, source: Source, scope: dict[str, Any]) -> None:
        self.trace, self.source, self.scope = trace, source, scope
        self.device_names: set[str] = set()
        self.one_arm: set[str] = set()
        self.in_passes: set[str] = set()
        self.folded: dict[int, list[ast.stmt]] = {}
        self.carrying: set[tuple[Any, ...]] = set()
        self.decided = 0

    @property
    def variables(self) -> dict[str, Any]:
        """The function's variables that are bound now."""
        return {name: self.scope[name] for name in sorted(self.source.locals) if name in self.scope}

    def run(self, statements: list[ast.stmt]) -> None:
        """Run statements in order."""
        for statement in statements:
            self.statement(statement)

    def begin(self, loop: ast.For | ast.While) -> Body:
        """The body of a loop that begins now: nothing has left it yet."""
        body = self.source.body(loop)
        if body.flag:
            self.scope[body.flag] = False
        return body

    def end(self, body: Body, orelse: list[ast.stmt]) -> None:
        """Run the `else` of a loop that was not left."""
        left = self.scope.pop(body.flag) if body.flag else False
        if isinstance(left, torch.Tensor) and orelse:
            raise exc.NotAllowedOnDevice(
                "`else` of a loop that is left where a value of a tile says so", hint="set a variable instead"
            )
        if left is False:
            self.run(orelse)

    def rebind(self, variables: dict[str, Any]) -> None:
        """Make `variables` all there are."""
        for name in self.variables.keys() - variables.keys():
            del self.scope[name]
        self.scope.update(variables)

    def evaluate(self, expression: ast.expr, test: bool = False) -> Any:
        """The value of an expression; of a `test` nothing but the truth counts."""
        return eval(self.source.expression(expression, self.trace.region is not None, test), self.scope)

    def execute(self, statement: ast.stmt) -> None:
        """Let Python run a statement."""
        exec(self.source.statement(statement, self.trace.region is not None), self.scope)

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind a loop target."""
        if isinstance(target, ast.Name):
            self.scope[target.id] = value
            return
        self.scope["__item"] = value
        exec(self.source.assignment(target), self.scope)
        del self.scope["__item"]

    def statement(self, node: ast.stmt) -> None:
        """Run one statement; errors get its place."""
        self.trace.line = node.lineno
        if self.trace.reference and _only_looks(self, node):
            return
        if self.trace.region is None and type(node) in _WHOLE and has_loop(self, [node]):
            kind = type(node).__name__.lower()
            raise exc.NestedGridLoop(
                f"a loop over tiles inside `{kind}` of the host", self.source.location(node), hint=_WHOLE[type(node)]
            )
        try:
            handler = _HANDLERS.get(type(node))
            if handler is not None:
                handler(self, node)
            else:
                before = kept.state(self.trace, self.variables, self.carrying)
                self.execute(node)
                self._name_values(node)
                if before:
                    variables = self.variables
                    kept.restore(self.trace, variables, before)
                    self.scope.update(variables)
        except exc.Error as error:
            error.message = named(self.trace.axes, error.message)
            raise exc.located(error, self._place(node, error)) from error.__cause__
        except NameError as error:
            raise self._undefined(node, error) from None
        except AttributeError as error:
            if not self._is_own(error):
                raise
            said = like_attribute(node, error, self.scope)
            raise exc.UndefinedAttribute(str(error), self._place(node, error), hint=said) from None
        except _TORCH_ERRORS as error:
            equate_in(self.trace, str(error))
            if self.trace.region is None and _asks_for_values(error):
                raise exc.HostValueNotAvailable(
                    "a value of a tensor is needed on the host while the kernel is compiled",
                    self._place(node, error),
                    hint="give what is made of it as an argument, or decide in the loop",
                ) from error
            if self.trace.region is None or self._raised(node, error):
                raise
            message, place = translate(self.trace, str(error)), self._place(node, error)
            said = hint(self.trace, str(error))
            if _is_of_numpy(error):  # np.sum(x) calls x.sum(axis=None, out=None)
                said = "write PyTorch's function, with `dim`: torch.sum(x, dim=1) for np.sum(x, axis=1), and so on"
            raise exc.TorchOpTracingError(message, place, hint=said) from error

    def _raised(self, node: ast.stmt, error: Exception) -> bool:
        """Whether a `raise` of the user's own code raised an error, which is for the caller then.

        Raises:
            NotAllowedOnDevice: a value of a tile decides whether it is raised.
        """
        inner = error.__traceback__
        while inner is not None and inner.tb_next is not None:
            inner = inner.tb_next
        if inner is None or inner.tb_frame.f_globals.get("__name__", "").partition(".")[0] in ("torch", "tilewright"):
            return False
        if inner.tb_frame.f_code.co_code[inner.tb_lasti] != dis.opmap["RAISE_VARARGS"]:
            return False
        if self.decided:
            raise exc.NotAllowedOnDevice(
                "`raise` where a value of a tile decides whether it is reached",
                self._place(node, error),
                hint="store what is wrong into a tensor of the host, and raise when the kernel has run",
            ) from error
        return True

    def _is_own(self, error: Exception) -> bool:
        """Whether an expression of the kernel itself asked for what is not there, and no function that it calls."""
        step, names = error.__traceback__, []
        while step is not None:
            names.append((step.tb_frame.f_code.co_filename, step.tb_frame.f_globals.get("__name__", "")))
            step = step.tb_next
        while names and names[-1][1].partition(".")[0] in ("torch", "tilewright"):  # `__getattr__` of the module
            names.pop()
        return bool(names) and names[-1][0] == self.source.file

    def _place(self, node: ast.stmt, error: BaseException) -> Any:
        location = self.source.location(node)
        found = exc.place_in(error.__traceback__, self.source.file)
        if found is None or not node.lineno <= found[0] <= (node.end_lineno or node.lineno):
            return location
        line, column, end = found
        return type(location)(self.source.file, line, column, end, None, self.source.name)

    def _undefined(self, node: ast.stmt, error: NameError) -> exc.Error:
        place = self._place(node, error)
        if error.name in self.device_names:
            return exc.CannotReadDeviceVariableOnHost(
                f"{error.name} exists only inside the loop over tiles",
                place,
                hint="store it into a tensor of the host inside the loop",
            )
        hint = "assign it in both branches" if error.name in self.one_arm else None
        if error.name in self.in_passes:
            hint = "assign it before the loop too: the loop may run no pass"
        return exc.UndefinedVariable(str(error), place, hint=hint)

    def _name_values(self, node: ast.stmt) -> None:
        """Values take the names of the variables they are first assigned to."""
        if self.trace.region is None or not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(name, ast.Name) and isinstance(self.scope.get(name.id), torch.Tensor):
                    value = self.trace.value(self.scope[name.id])
                    if value is not None and not value.name:
                        value.name = name.id

    # --- control flow --------------------------------------------------------------------------------

    def unrolled(self, node: ast.For, items: Any) -> None:
        """A `for` over something that Python can iterate now."""
        body = self.begin(node)
        for item in items:
            if self.scope.get(body.flag) is True:
                break
            self.assign(node.target, item)
            self.run(body.statements)
        self.end(body, node.orelse)


def _only_looks(interpreter: Interpreter, node: ast.stmt) -> bool:
    """Whether a statement computes nothing: `print(...)`, of whatever Python can make of values, or an assertion."""
    if isinstance(node, ast.Assert):
        return interpreter.trace.region is not None
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    function = node.value.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name == "device_print" or (name == "print" and "print" not in interpreter.scope)


def has_loop(interpreter: Interpreter, statements: list[ast.stmt]) -> bool:
    """Whether statements of the host contain a loop over tiles."""
    loops = (inner for statement in statements for inner in ast.walk(statement) if isinstance(inner, ast.For))
    return any(is_tile_loop(interpreter, loop) for loop in loops)


def is_tile_loop(interpreter: Interpreter, node: ast.For) -> bool:
    """Whether a `for` of the host iterates `hl.tile` or its kin, found without evaluating its arguments."""
    if not isinstance(node.iter, ast.Call):
        return False
    try:
        function = interpreter.evaluate(node.iter.func)
    except Exception:
        return False
    return bool(getattr(function, "makes_loop", False))


def _for(interpreter: Interpreter, node: ast.For) -> None:
    if interpreter.trace.region is None and not is_tile_loop(interpreter, node):
        if has_loop(interpreter, node.body):
            raise exc.NestedGridLoop(
                "a loop over tiles inside a loop of the host", hint="call the kernel once per round instead"
            )
        interpreter.execute(node)
        return
    items = interpreter.evaluate(node.iter)
    if isinstance(items, Range):
        _LOOP["run"](interpreter, node, items)
        return
    if isinstance(items, torch.Tensor | Sym):
        raise exc.InvalidDeviceForLoop(
            "a loop over tiles cannot iterate this: how often it runs is not known while the kernel is traced",
            hint="write hl.grid(n) or hl.tile(n)",
        )
    interpreter.unrolled(node, items)


def _if(interpreter: Interpreter, node: ast.If) -> None:
    if interpreter.trace.region is None and _leaves([*node.body, *node.orelse]):
        _if_left(interpreter, node)
        return
    if interpreter.trace.region is None and not has_loop(interpreter, [*node.body, *node.orelse]):
        interpreter.execute(node)
        return
    test = interpreter.evaluate(node.test, test=True)
    if isinstance(test, torch.Tensor | Sym | ConfiguredTruth) and interpreter.trace.region is not None:
        _LOOP["if"](interpreter, node, test)
        return
    arm = node.body if test else node.orelse
    if interpreter.trace.region is None:
        interpreter.folded[node.lineno] = arm
    interpreter.run(arm)


def _leaves(statements: list[ast.stmt]) -> bool:
    """Whether statements of the host contain a `return`."""
    return any(isinstance(inner, ast.Return) for statement in statements for inner in ast.walk(statement))


def _if_left(interpreter: Interpreter, node: ast.If) -> None:
    """A branch of the host that may return: the launcher has it as it stands; the trace follows the arm that is taken.

    Where the condition is known only when the kernel is launched, the trace goes on behind the arm without `return`.
    """
    try:
        arm = node.body if interpreter.evaluate(node.test, test=True) else node.orelse
    except (exc.SizeUsedAsNumber, RuntimeError):
        if _leaves(node.body) == _leaves(node.orelse) or has_loop(interpreter, [*node.body, *node.orelse]):
            raise
        arm = node.orelse if _leaves(node.body) else node.body
    else:
        if has_loop(interpreter, [*node.body, *node.orelse]):
            interpreter.folded[node.lineno] = arm
    interpreter.run(arm)


def _while(interpreter: Interpreter, node: ast.While) -> None:
    if interpreter.trace.region is None:
        interpreter.execute(node)
        return
    if isinstance(_tried(interpreter, node.test), torch.Tensor | Sym):
        _LOOP["while"](interpreter, node)
        return
    body = interpreter.begin(node)
    while interpreter.scope.get(body.flag) is not True and interpreter.evaluate(node.test, test=True):
        interpreter.run(body.statements)
        if isinstance(interpreter.scope.get(body.flag), torch.Tensor):
            raise exc.NotAllowedOnDevice(
                "`break` where a value of a tile says so, out of a loop that is unrolled",
                hint="count with hl.grid, or let the condition depend on a value of the tile",
            )
    interpreter.end(body, node.orelse)


def _tried(interpreter: Interpreter, test: ast.expr) -> Any:
    """What a condition is, of which nothing is written down: an atomic update in it happens once an iteration."""
    trace = interpreter.trace
    snapshot, outer = trace.snapshot(), trace.region
    trace.region = Region()
    try:
        return interpreter.evaluate(test, test=True)
    finally:
        trace.region = outer
        trace.restore(snapshot)


def _assert(interpreter: Interpreter, node: ast.Assert) -> None:
    """An assertion; what it says of choices of the configuration is left to the launcher."""
    try:
        interpreter.execute(node)
    except ChosenLater:
        if interpreter.trace.region is not None:
            raise


def _return(interpreter: Interpreter, node: ast.Return) -> None:
    if interpreter.trace.region is not None:
        raise exc.NotAllowedOnDevice(
            "`return` inside a loop over tiles", hint="return after the loop; `continue` skips the rest of a tile"
        )
    if node.value is not None:
        interpreter.evaluate(node.value)
    raise Left


def _refused(interpreter: Interpreter, node: ast.stmt) -> None:
    if interpreter.trace.region is not None:
        raise exc.NotAllowedOnDevice(
            f"`{type(node).__name__.lower()}` inside a loop over tiles", hint="put it around the call of the kernel"
        )
    interpreter.execute(node)


_HANDLERS: dict[type[ast.stmt], Callable[[Interpreter, Any], None]] = {
    ast.For: _for,
    ast.If: _if,
    ast.While: _while,
    ast.Assert: _assert,
    ast.Return: _return,
    ast.Try: _refused,
    ast.With: _refused,
    ast.Global: _refused,
    ast.Nonlocal: _refused,
    ast.ClassDef: _refused,
}

# Loops and branches over device values; their files are above this one.
_LOOP: dict[str, Callable[..., None]] = {}


def provide(name: str, function: Callable[..., None]) -> None:
    """Register who interprets "run" (loops over tiles), "if" and "while" of device values."""
    _LOOP[name] = function
