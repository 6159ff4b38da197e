"""`EagerEmitter`: the emitter that evaluates each operation at once, through the reference of its record.

User functions of the language call it as they call the builder of tile IR: types are inferred and checked by the
same rules, and what would be an SSA value is an array. A scalar type whose data has more than one element stands for
many lanes at once: so the body of a reduction is applied to whole arrays.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.backends.reference import products
from tilewright.backends.reference.evaluate import Program, lane_by_lane
from tilewright.backends.reference.replay import NotKeyed, Replay, Step, key_of
from tilewright.backends.reference.rewrite import is_kernel_code, python_of
from tilewright.backends.reference.value import EagerValue, LaneDependent
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import Type
from tilewright.base.errors import UnsupportedError
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.ir.op import TileOp
from tilewright.ir.types import to_ir
from tilewright.language.library import LibraryFunction
from tilewright.ops import fp_contraction
from tilewright.ops.builtin import BodyFn, Builtin, Emitter, python_number
from tilewright.ops.casts import IntToPtrOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.spec import Array, Call, Combine, spec_of
from tilewright.ops.values import tensor


class EagerEmitter(Emitter):
    """Evaluates operations for the programs of one launch; numpy's warnings are for the caller to silence.

    Args:
        target: what the kernel would be compiled for.
        options: compile options.
        program: surroundings of the evaluation; it is moved from program to program.
    """

    def __init__(self, target: Target, options: Options, program: Program) -> None:
        self.target = target
        self.options = options
        self.program = program
        self.stretch = 0  # of the program, since the last branch or loop of run time began or ended
        self._products = itertools.count()
        self._constants: dict[Any, tensor] = {}
        self._types: dict[Type, Type] = {}
        self._replays: dict[Any, Replay | None] = {}  # None where a call must be run again
        self._steps: list[Step] | None = None  # what is applied, while a call is being recorded
        self._foreign_calls = 0  # of functions that are not of the language
        self._warned: set[tuple[str, str, int]] = set()

    # -- operations -------------------------------------------------------------------------------

    def apply(self, cls: type[TileOp], operands: Sequence[Any], call: Call, regions: Sequence[Any]) -> tuple[Any, ...]:
        """Evaluate an op whose types are known to be right."""
        if cls is IntToPtrOp:
            self.program.memory.open_process()
        flat: list[Any] = []
        for operand in operands:
            flat.extend(operand if isinstance(operand, (list, tuple)) else [operand])
        call = Call(call.attrs, call.operand_types, call.result_types, tuple(regions), self.program)
        reference = _reference(cls)
        if self.options.enable_fp_fusion and call.result_types and fp_contraction.is_sum(cls, call.result_types[0]):
            reference, call, flat = products.fused(cls, flat, call, self.stretch) or (reference, call, flat)
        steps, self._steps = self._steps, None  # what a body applies belongs to the operation that it is the body of
        result = reference(call, *[None if v is None else v.data for v in flat])
        self._steps = steps
        arrays = () if result is None else result if isinstance(result, tuple) else (result,)
        values = tuple([EagerValue(t, np.asarray(a)) for a, t in zip(arrays, call.result_types, strict=True)])
        if steps is not None:
            steps.append((reference, call, flat, values))
        if values and fp_contraction.is_product(cls, values[0].type):
            self._remember(values[0], flat)
        return values

    def constant(self, value: bool | int | float, type: Type) -> tensor:
        """A constant of a language type; each is made once per launch."""
        key = (type, repr(value))
        found = self._constants.get(key)
        if found is None:
            steps, self._steps = self._steps, None
            found = self._constants[key] = self.emit(ConstantOp, type, value=value)
            self._steps = steps
        if self._steps is None:
            return found
        # In a recording it must not be taken for an argument that happens to be the same constant.
        return tensor(EagerValue(found.handle.type, found.handle.data), type)  # type: ignore[attr-defined]

    # -- functions ----------------------------------------------------------------------------------

    def invoke(self, function: Builtin, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A builtin called by its name, by a kernel that runs as Python."""
        if any(isinstance(arg, np.generic) for arg in (*args, *kwargs.values())):
            args = tuple(python_number(arg) for arg in args)
            kwargs = {name: python_number(arg) for name, arg in kwargs.items()}
        return self._replayed(function, lambda: function.fn(self, *args, **kwargs), args, kwargs)

    def call(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a builtin, block function or lambda with kernel values."""
        self._foreign_calls += not isinstance(fn, (Builtin, LibraryFunction))
        python = python_of(fn) if isinstance(fn, BlockFunction) else fn
        return python(*args, **(kwargs or {}))

    def _replayed(self, fn: Any, run: Callable[[], Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Result of `run`, a call of `fn` with `args` and `kwargs`: by what a call with the same types has done."""
        if self._steps is not None:
            return run()
        tensors: list[tensor] = []
        try:
            key = _key(fn, args, kwargs, tensors)
            if key not in self._replays:
                # Types are told apart by identity; an equal one may have come before.
                for value in tensors:
                    value.type = self._types.setdefault(value.type, value.type)
                key = _key(fn, args, kwargs, tensors)
        except NotKeyed:
            return run()
        inputs: list[Any] = [value.handle for value in tensors]
        known = products.among(inputs, self.stretch)
        if known:  # what takes them in does other things than what is given other values, or takes the other one
            key = (key, *[index for index, _ in known])
            inputs += [factor for _, product in known for factor in product.factors]
        found = self._replays.get(key)
        if found is not None:
            return found(inputs, self._remember)
        if key in self._replays:
            return run()
        result, self._replays[key] = self._recorded(run, tensors, inputs)
        return result

    def _remember(self, value: EagerValue, factors: Sequence[EagerValue]) -> None:
        products.remember(value, factors, next(self._products), self.stretch)

    def _recorded(
        self, run: Callable[[], Any], args: Sequence[tensor], inputs: Sequence[EagerValue]
    ) -> tuple[Any, Replay | None]:
        """Result of `run`, and how to do the same to other values in the place of `inputs`, if that is known."""
        self._steps, before = [], (EagerValue.reads, len(self._warned), self._foreign_calls)
        try:
            result = run()
        finally:
            steps, self._steps = self._steps, None
        seen = before != (EagerValue.reads, len(self._warned), self._foreign_calls)
        if seen or (result is None and not steps):  # the user may have seen it happen, and expects to see it again
            return result, None
        try:
            return result, Replay(steps, args, inputs, result)
        except NotKeyed:
            return result, None

    def region(self, arg_types: Sequence[Type], body: BodyFn, terminator: type[TileOp]) -> Combine:
        """The body of a reduction or scan, as a function of arrays of one shape."""
        types = [(to_ir(t), t) for t in arg_types]
        replay: Replay | None = None
        tried = False

        def apply(*arrays: Array) -> tuple[Array, ...]:
            nonlocal replay, tried
            if replay is not None:
                return replay.apply(arrays)
            args = [tensor(EagerValue(ir, array), type_) for array, (ir, type_) in zip(arrays, types, strict=True)]
            if tried:
                results = tuple(body(*args))
            else:
                tried = True
                handles: list[Any] = [arg.handle for arg in args]
                results, replay = self._recorded(lambda: tuple(body(*args)), args, handles)
            return tuple([r.handle.data for r in results])  # type: ignore[attr-defined]

        def combine(*arrays: Array) -> tuple[Array, ...]:
            try:
                found = apply(*arrays)
            except LaneDependent:
                return lane_by_lane(apply, arrays)
            shape = arrays[0].shape
            return tuple([r if r.shape == shape else np.broadcast_to(r, shape) for r in found])

        return combine

    def warn(self, message: str) -> None:
        """A Python warning at the line of the kernel, once per line and launch."""
        frame: Any = sys._getframe(1)
        while frame is not None and not is_kernel_code(frame.f_code):
            frame = frame.f_back
        place = ("<kernel>", 1) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        if (message, *place) not in self._warned:
            self._warned.add((message, *place))
            warnings.warn_explicit(message, UserWarning, *place)


def _key(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: list[tensor]) -> Any:
    """What calls of `fn` that do the same have in common; the tensors among the arguments are put into `tensors`."""
    tensors.clear()
    key: Any = (fn, *[key_of(value, tensors) for value in args])
    if kwargs:
        key = (key, *[(name, key_of(value, tensors)) for name, value in kwargs.items()])
    handles = [id(value.handle) for value in tensors]
    if len(set(handles)) < len(handles):  # the same value twice: another call may be given two
        key = (key, *[handles.index(handle) for handle in handles])
    return key


def _reference(cls: type[TileOp]) -> Any:
    reference = spec_of(cls).reference
    if reference is None:
        raise UnsupportedError(f"{cls.name} cannot be interpreted", hint="compile the kernel to run it")
    return getattr(reference, "__wrapped__", reference)
