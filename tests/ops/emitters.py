"""Two small emitters for the tests of user functions: one records IR, one evaluates with the numpy references."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.test import TestOp as ValuesOp
from xdsl.ir import Attribute

from tilewright.base.dtypes import Type, scalar_from_signature
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.ir.op import TileOp
from tilewright.ir.types import to_ir
from tilewright.ops.broadcast import checked_block
from tilewright.ops.builtin import BodyFn, Emitter
from tilewright.ops.constant import ConstantOp
from tilewright.ops.spec import Call, spec_of
from tilewright.ops.values import tensor


class _Base(Emitter):
    target = Target("cpu", "generic")

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.warnings: list[str] = []

    def constant(self, value: bool | int | float, type: Type) -> tensor:
        return self.emit(ConstantOp, type, value=value)

    def region(self, arg_types: Sequence[Type], body: BodyFn, terminator: type[TileOp]) -> Any:
        raise NotImplementedError

    def call(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        raise NotImplementedError

    def warn(self, message: str) -> None:
        self.warnings.append(message)


class Recorder(_Base):
    """Builds operations into a module; `names` lists them."""

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self.module = ModuleOp([])

    def value(self, signature: str, shape: Sequence[int] = ()) -> tensor:
        """A value of unknown content, of a type such as "fp32" or "*i32"."""
        type_ = checked_block(scalar_from_signature(signature), tuple(shape))
        source = ValuesOp(result_types=[to_ir(type_)])
        self.module.body.block.add_op(source)
        return tensor(source.results[0], type_)

    def apply(self, cls: type[TileOp], operands: Sequence[Any], call: Call, regions: Sequence[Any]) -> tuple[Any, ...]:
        op = cls.build_op([() if o is None else o for o in operands], call.result_types, call.attrs)
        self.module.body.block.add_op(op)
        return tuple(op.results)

    @property
    def names(self) -> list[str]:
        """Names of the recorded operations in order, constants and sources left out."""
        skipped = (ValuesOp.name, ConstantOp.name)
        return [op.name for op in self.module.ops if op.name not in skipped]


@dataclass
class Eager:
    """An evaluated value."""

    array: np.ndarray[Any, Any]
    type: Attribute


class Evaluator(_Base):
    """Evaluates each operation at once; `machine` answers questions about the grid."""

    machine: Any = None

    def value(self, array: Any, signature: str) -> tensor:
        """`array`, in the working form of the type that `signature` names."""
        type_: Any = scalar_from_signature(signature)
        held = np.asarray(array, dtype=type_.work_dtype)
        if type_.is_int_unsigned() and not type_.is_bool():
            held = held.view(f"int{type_.primitive_bitwidth}")
        block = checked_block(type_, held.shape)
        return tensor(Eager(held, to_ir(block)), block)

    def apply(self, cls: type[TileOp], operands: Sequence[Any], call: Call, regions: Sequence[Any]) -> tuple[Any, ...]:
        reference = spec_of(cls).reference
        assert reference is not None
        call = dataclasses.replace(call, machine=self.machine)
        result = reference(call, *[operand.array for operand in operands])
        results = () if result is None else result if isinstance(result, tuple) else (result,)
        return tuple(Eager(np.asarray(r), t) for r, t in zip(results, call.result_types, strict=True))


def array_of(value: tensor) -> np.ndarray[Any, Any]:
    """What an evaluated tensor holds; unsigned integers as such."""
    handle: Any = value.handle
    dtype = value.dtype
    if dtype.is_int_unsigned() and not dtype.is_bool():
        return np.asarray(handle.array.view(dtype.work_dtype))
    return np.asarray(handle.array)
