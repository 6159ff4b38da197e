"""`EagerEmitter`: the emitter that evaluates each operation at once, through the reference of its record.

User functions of the language call it as they call the builder of tile IR: types are inferred and checked by the
same rules, and what would be an SSA value is an array. A scalar type whose data has more than one element stands for
many lanes at once: so the body of a reduction is applied to whole arrays.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from tilewright.backends.reference.evaluate import Program
from tilewright.backends.reference.rewrite import is_kernel_code, python_of
from tilewright.backends.reference.value import EagerValue, LaneDependent
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import Type
from tilewright.base.errors import InternalError, UnsupportedError
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.ir.op import TileOp
from tilewright.ir.types import to_ir
from tilewright.language.library import LibraryFunction
from tilewright.ops.builtin import BodyFn, Builtin, Emitter
from tilewright.ops.casts import IntToPtrOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.spec import Array, Call, Combine, spec_of
from tilewright.ops.values import tensor


class Replay:
    """A function of tensors as the operations that it applied when it was recorded.

    Args:
        steps: (reference, call, operands, results) in order.
        args: the values that it was recorded on.
        results: the tensors that it returned.
        single: it returned one tensor, not a tuple.
    """

    def __init__(self, steps: Sequence[Any], args: Sequence[tensor], results: Sequence[tensor], single: bool) -> None:
        slots: dict[int, int] = {}
        self._constants: list[Array | None] = []

        def slot(value: Any, *, known: bool) -> int:
            found = slots.get(id(value))
            if found is None:
                found = slots[id(value)] = len(self._constants)
                self._constants.append(None if known else value.data)
            return found

        for arg in args:
            slot(arg.handle, known=True)
        self._steps = [
            (reference, call, [slot(v, known=False) for v in operands], [slot(v, known=True) for v in made])
            for reference, call, operands, made in steps
        ]
        self._results = [(slot(r.handle, known=False), r.handle.type, r.type) for r in results]
        self._single = single

    def __call__(self, args: Sequence[tensor]) -> Any:
        """Apply it to other values of the same types."""
        arrays: list[Any] = self._constants.copy()
        for index, arg in enumerate(args):
            arrays[index] = arg.handle.data  # type: ignore[attr-defined]
        for reference, call, operands, made in self._steps:
            result = reference(call, *[arrays[k] for k in operands])
            if len(made) == 1 and not isinstance(result, tuple):
                arrays[made[0]] = result
            else:
                for k, array in zip(made, result, strict=True):
                    arrays[k] = array
        values = [tensor(EagerValue(ir, arrays[k]), type_) for k, ir, type_ in self._results]
        return values[0] if self._single else tuple(values)


class EagerEmitter(Emitter):
    """Evaluates operations for the programs of one launch.

    Args:
        target: what the kernel would be compiled for.
        options: compile options.
        program: surroundings of the evaluation; it is moved from program to program.
    """

    def __init__(self, target: Target, options: Options, program: Program) -> None:
        self.target = target
        self.options = options
        self.program = program
        self._known: dict[Any, tuple[Any, Call, Any]] = {}  # what was inferred, by op, attributes and types
        self._constants: dict[Any, tensor] = {}
        self._replays: dict[Any, Replay | None] = {}
        self._steps: list[Any] | None = None  # what is applied, while a function is being recorded
        self._warned: set[tuple[str, str, int]] = set()

    # -- operations -------------------------------------------------------------------------------

    def op(
        self,
        cls: type[TileOp],
        *operands: Any,
        attrs: Mapping[str, Any] | None = None,
        result_types: Sequence[Attribute] = (),
        regions: Sequence[Any] = (),
    ) -> tuple[Any, ...]:
        """As :meth:`Emitter.op`, remembering what was inferred for the same op, attributes and types."""
        if regions:
            return super().op(cls, *operands, attrs=attrs, result_types=result_types, regions=regions)
        flat = _flat(operands)
        try:
            key = (
                cls,
                tuple([None if v is None else id(v.type) for v in flat]),
                tuple([id(t) for t in result_types]),
                tuple(attrs.items()) if attrs else (),
            )
            known = self._known.get(key)
        except TypeError:  # an attribute that cannot be hashed
            return super().op(cls, *operands, attrs=attrs, result_types=result_types)
        if known is None:
            results = super().op(cls, *operands, attrs=attrs, result_types=result_types)
            types = tuple([None if v is None else v.type for v in flat])
            call = Call(attrs or {}, types, tuple([r.type for r in results]), machine=self.program)
            # The types asked for are kept so that their ids stay theirs.
            self._known[key] = (_reference(cls), call, result_types)
            return results
        return self._evaluate(known[0], known[1], flat)

    def apply(
        self, cls: type[TileOp], operands: Sequence[Any], call: Call, regions: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Evaluate an op whose types are known to be right."""
        if cls is IntToPtrOp:
            self.program.memory.open_process()
        full = Call(call.attrs, call.operand_types, call.result_types, tuple(regions), self.program)
        return self._evaluate(_reference(cls), full, _flat(operands))

    def _evaluate(self, reference: Any, call: Call, operands: Sequence[Any]) -> tuple[Any, ...]:
        result = reference(call, *[None if v is None else v.data for v in operands])
        if result is None:
            values: tuple[EagerValue, ...] = ()
        elif isinstance(result, tuple):
            values = tuple([EagerValue(t, np.asarray(r)) for r, t in zip(result, call.result_types, strict=True)])
        else:
            values = (EagerValue(call.result_types[0], np.asarray(result)),)
        if self._steps is not None:
            self._steps.append((reference, call, operands, values))
        return values

    def constant(self, value: bool | int | float, type: Type) -> tensor:
        """A constant of a language type; each is made once per launch."""
        key = (type, repr(value))
        found = self._constants.get(key)
        if found is None:
            outer, self._steps = self._steps, None
            found = self._constants[key] = self.emit(ConstantOp, type, value=value)
            self._steps = outer
        return found

    # -- functions ----------------------------------------------------------------------------------

    def region(self, arg_types: Sequence[Type], body: BodyFn, terminator: type[TileOp]) -> Combine:
        """The body of a reduction or scan, as a function of arrays of one shape."""
        types = [(to_ir(t), t) for t in arg_types]

        def apply(arrays: Sequence[Array]) -> list[Any]:
            results = body(*[tensor(EagerValue(ir, a), t) for a, (ir, t) in zip(arrays, types, strict=True)])
            return [r.handle.data for r in results]  # type: ignore[attr-defined]

        def combine(*arrays: Array) -> tuple[Array, ...]:
            try:
                found = apply(arrays)
            except LaneDependent:
                return _lane_by_lane(apply, arrays)
            shape = arrays[0].shape
            return tuple([r if r.shape == shape else np.broadcast_to(r, shape) for r in found])

        return combine

    def call(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a builtin, block function or lambda with kernel values."""
        if isinstance(fn, Builtin):
            return fn.fn(self, *args, **(kwargs or {}))
        if isinstance(fn, LibraryFunction) and not kwargs and self._steps is None:
            return self._call_library(fn, args)
        if isinstance(fn, BlockFunction):
            return python_of(fn)(*args, **(kwargs or {}))
        return fn(*args, **(kwargs or {}))

    def _call_library(self, fn: LibraryFunction, args: Sequence[Any]) -> Any:
        """Functions of the language are recorded once per combination of types: reductions apply them many times."""
        key = (fn, *[arg.type if isinstance(arg, tensor) else None for arg in args])
        found = self._replays.get(key)
        if found is not None:
            return found(args)
        if None in key or key in self._replays:
            return python_of(fn)(*args)
        self._replays[key] = None
        self._steps, reads = [], EagerValue.reads
        try:
            result = python_of(fn)(*args)
        finally:
            steps, self._steps = self._steps, None
        several = result if isinstance(result, tuple) else (result,)
        if reads == EagerValue.reads and all(isinstance(r, tensor) for r in several):
            self._replays[key] = Replay(steps, args, several, not isinstance(result, tuple))
        return result

    def warn(self, message: str) -> None:
        """A Python warning at the line of the kernel, once per line and launch."""
        frame: Any = sys._getframe(1)
        while frame is not None and not is_kernel_code(frame.f_code):
            frame = frame.f_back
        place = ("<kernel>", 1) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        if (message, *place) not in self._warned:
            self._warned.add((message, *place))
            warnings.warn_explicit(message, UserWarning, *place)


def _reference(cls: type[TileOp]) -> Any:
    spec = spec_of(cls)
    if spec.reference is None:
        if spec.lowering:
            raise UnsupportedError(f"{cls.name} cannot be interpreted", hint="compile the kernel to run it")
        raise InternalError(f"{cls.name} has no reference")
    return spec.reference


def _flat(operands: Sequence[Any]) -> Sequence[Any]:
    for operand in operands:
        if operand is not None and operand.__class__ is not EagerValue:
            break
    else:
        return operands
    flat: list[Any] = []
    for operand in operands:
        flat.extend(operand if isinstance(operand, (list, tuple)) else [operand])
    return flat


def _lane_by_lane(apply: Callable[[Sequence[Array]], list[Any]], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """A body that decides by its data, on one element after the other."""
    shape = arrays[0].shape
    lanes = [np.asarray(array).reshape(-1) for array in arrays]
    rows = [apply([lane[k : k + 1].reshape(()) for lane in lanes]) for k in range(lanes[0].size)]
    count = len(rows[0]) if rows else len(arrays) // 2
    out = []
    for index in range(count):
        column = np.array([row[index] for row in rows], dtype=arrays[index].dtype)
        out.append(column.reshape(shape))
    return tuple(out)
