"""The entry point of this room: a kernel in tile IR becomes the kernel of its gradient.

tt.func @f(%x_ptr, %y_ptr, %n)    ->    tt.func @f_gradient(%x_ptr, %y_ptr, %n, %d_x_ptr, %d_y_ptr)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Attribute, SSAValue

from tilewright.base.errors import ArgumentError
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.frontend.builder import IRBuilder, Position
from tilewright.frontend.entry import BuiltKernel, RuntimeParam
from tilewright.gradients.activity import Activity, activity_of
from tilewright.gradients.emission import emit_counts, emit_gradient
from tilewright.gradients.prepare import prepare
from tilewright.gradients.shadows import Shadows
from tilewright.gradients.tape import Tape
from tilewright.ir.types import element_type, i32, is_float, is_pointer, to_ir
from tilewright.ops.function import FuncOp, ReturnOp
from tilewright.ops.memory import pointee_tile

PREFIX = "d_"
"""What the name of a gradient begins with."""
TAPE, ITERATIONS = "gradient_tape", "gradient_iterations"
"""Parameters of a gradient kernel whose loops keep something; the latter, as a pointer, of the kernel that counts."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A gradient kernel.

    Args:
        module: its tile IR.
        outputs: parameters of the kernel whose gradient it reads.
        consumed: those of them in whose gradient it leaves what was stored by nobody, and 0 elsewhere.
        inputs: parameters of the kernel that it reads.
        tape_bytes: bytes that a program keeps in an iteration of its longest loop; 0 where no loop keeps anything.
    """

    module: ModuleOp
    outputs: tuple[str, ...]
    consumed: tuple[str, ...]
    inputs: tuple[str, ...]
    tape_bytes: int


def derive(
    built: BuiltKernel,
    wrt: Sequence[str],
    more: Sequence[RuntimeParam],
    options: Options,
    target: Target,
    name: str,
    *,
    counts: bool = False,
) -> Derived:
    """Make the gradient kernel of a kernel.

    Args:
        built: the kernel as the front end makes it; it is used up.
        wrt: parameters of the kernel that get gradients.
        more: parameters that the gradient kernel has besides: gradients, by the names of what they are of behind
            `PREFIX`, and those of the tape.
        options, target: as for the kernel.
        name: symbol of the gradient kernel.
        counts: make the kernel that counts iterations instead.

    Raises:
        NotDifferentiableError: the kernel has no gradient; the error points into its source.
        ArgumentError: `wrt` names what is no array or float of the kernel, or it stores through a part of a tuple.
    """
    prepare(built.module)
    function = FuncOp.kernel_of(built.module)
    arguments = _arguments(function, built.params)
    wanted = [_differentiated(arguments, param) for param in wrt]
    activity = activity_of(function, wanted)
    made = _Made(function, more, options, target, name)
    shadows = Shadows({arguments[n][0]: value for n, value in made.gradients().items() if n in arguments})
    tape = Tape(made.entry.body.block)
    emit_gradient(made.b, function, made.values, activity, shadows, tape)
    if counts:
        made = _Made(function, more, options, target, name)
        emit_counts(made.b, function, made.values, activity, tape, made.more[ITERATIONS])
    elif TAPE in made.more:
        tape.place(made.b, made.more[TAPE], made.more[ITERATIONS])
    made.b.finish(ReturnOp, [])
    return _described(made, arguments, activity, tape)


class _Made:
    """A function with the arguments of another and more, and what writes into it."""

    def __init__(
        self, function: FuncOp, more: Sequence[RuntimeParam], options: Options, target: Target, name: str
    ) -> None:
        old = function.body.block.args
        facts = [function.arg_attributes(n) for n in range(len(old))]
        facts += [{f"tt.{key}": IntegerAttr(value, i32) for key, value in param.attrs.items()} for param in more]
        types = [*(argument.type for argument in old), *(to_ir(param.type) for param in more)]
        self.entry = FuncOp.build(name, types, [], arg_attrs=facts)
        self.entry.location = function.location
        values = self.entry.body.block.args
        self.values: Sequence[SSAValue] = values[: len(old)]
        self.more: Mapping[str, SSAValue] = {p.name: v for p, v in zip(more, values[len(old) :], strict=True)}
        self.b = IRBuilder(target, options)
        self.b.position = Position(self.entry.body.block)
        self.module = ModuleOp([self.entry])

    def gradients(self) -> dict[str, SSAValue]:
        """The pointers to gradients by parameter of the kernel."""
        return {name[len(PREFIX) :]: value for name, value in self.more.items() if name.startswith(PREFIX)}


def _arguments(function: FuncOp, params: Sequence[RuntimeParam]) -> dict[str, list[SSAValue]]:
    """The pointers and floats of a kernel by parameter; of a descriptor, its pointer."""
    found: dict[str, list[SSAValue]] = {}
    for argument, param in zip(function.body.block.args, params, strict=True):
        element = element_type(argument.type)
        if is_pointer(element) or is_float(element):
            found.setdefault(param.name.partition(".")[0], []).append(argument)
    return found


def _differentiated(arguments: Mapping[str, Sequence[SSAValue]], name: str) -> SSAValue:
    found = arguments.get(name, ())
    floats = [v for v in found if is_float(element_type(v.type)) or is_float(_pointee(v))]
    if len(found) != 1 or len(floats) != 1:
        raise ArgumentError(
            f"`{name}` is no array of floats and no float in this call, so there is no gradient with respect to it",
            hint="wrt names parameters that are pointers to floats, descriptors of them, or floats",
        )
    return floats[0]


def _pointee(value: SSAValue) -> Attribute:
    element = element_type(value.type)
    return element_type(pointee_tile(value.type)) if is_pointer(element) else element


def _described(made: _Made, arguments: Mapping[str, Sequence[SSAValue]], activity: Activity, tape: Tape) -> Derived:
    names = {value: name for name, values in arguments.items() for value in values}
    for name in sorted(names[home] for home in activity.outputs):
        if len(arguments[name]) > 1:
            raise ArgumentError(
                f"`{name}` holds several arrays or floats, through one of which the kernel stores",
                hint="pass that array as a parameter of its own: its gradient is passed by name",
            )
    read = {home for op, home in activity.homes.items() if home not in activity.outputs}
    return Derived(
        made.module,
        tuple(sorted(names[home] for home in activity.outputs)),
        tuple(sorted(names[home] for home in activity.consumed)),
        tuple(sorted(names[home] for home in read if home in names)),
        tape.bytes,
    )
