"""Recording what a function of the language does to values of given types, to do it again without running its Python.

A builtin looks at types and compile-time values only, never at data. So the operations that it applied once are what it
applies to all values of the same types: promotion, checks and broadcasting rules are decided once per launch.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.backends.reference.value import EagerValue
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import Type
from tilewright.ops.builtin import Builtin
from tilewright.ops.spec import Call
from tilewright.ops.values import constexpr, tensor

Step = tuple[Any, Call, Sequence[Any], Sequence[EagerValue]]
"""Reference, call, operands, results."""
Remember = Callable[[EagerValue, Sequence[EagerValue]], None]
"""Told of a product and its factors."""


class NotKeyed(Exception):
    """An argument that may differ in ways that no key tells."""


def key_of(value: Any, tensors: list[tensor]) -> Any:
    """What calls must have in common to do the same: types of tensors, which are appended to `tensors`, and constants.

    Raises:
        NotKeyed: the value is none of these.
    """
    kind = value.__class__
    if kind is tensor:
        tensors.append(value)
        return id(value.type)
    if kind is int or value is None or kind is bool or kind is str:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is constexpr:
        return kind, key_of(value.value, tensors)
    if isinstance(value, (tuple, list)):
        return kind, *[key_of(part, tensors) for part in value]
    if kind is slice:
        return kind, *[key_of(part, tensors) for part in (value.start, value.stop, value.step)]
    if value is ... or isinstance(value, (Type, BlockFunction, Builtin, enum.Enum)):
        return kind, value
    raise NotKeyed


class Replay:
    """The operations that a call applied, for values of the same types.

    Args:
        steps: in order.
        args: the tensors that it was given; their types stay alive, so that a key made of their ids stays theirs.
        inputs: their values, and the factors of those that are products.
        result: what it returned: a tensor, `None`, or a tuple of these.

    Raises:
        NotKeyed: the result is something else.
    """

    __slots__ = ("_args", "_arity", "_constants", "_result", "_slots", "_steps")

    def __init__(
        self, steps: Sequence[Step], args: Sequence[tensor], inputs: Sequence[EagerValue], result: Any
    ) -> None:
        self._args = [arg.type for arg in args]
        self._arity = len(inputs)
        self._constants: list[Any] = []
        self._slots: dict[int, int] = {}
        for index, value in enumerate(inputs):
            self._slots.setdefault(id(value), index)
        self._steps = []
        for reference, call, operands, made in steps:
            given = [self._slot(value) for value in operands]
            self._steps.append((reference, call, given, [self._slot(value, fresh=True) for value in made]))
            if made and made[0].product is not None:
                self._slots.update(zip(map(id, made[0].product.factors), given))
        self._result = self._template(result)

    def _slot(self, value: Any, *, fresh: bool = False) -> int:
        """Where the array of a value stands; values from outside the recording are constants."""
        found = self._slots.get(id(value))
        if found is None or value is None:
            found = self._arity + len(self._constants)
            self._constants.append(None if fresh or value is None else value.data)
            if value is not None:
                self._slots[id(value)] = found
        return found

    def _template(self, result: Any) -> Any:
        if isinstance(result, tensor):
            handle: Any = result.handle
            factors = () if handle.product is None else handle.product.factors
            known = all(id(factor) in self._slots for factor in factors)
            return self._slot(handle), handle.type, result.type, [self._slot(factor) for factor in factors if known]
        if isinstance(result, tuple):
            kind = type(result)  # a record that is a tuple is made of its parts by `_make`
            return [getattr(kind, "_make", kind), [self._template(part) for part in result]]
        if result is not None:
            raise NotKeyed
        return None

    def __call__(self, inputs: Sequence[EagerValue], remember: Remember) -> Any:
        """Do it to other values; returns what was returned. `remember` is told of results that are products."""
        return _filled(self._result, self._run([value.data for value in inputs]), remember)

    def apply(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Do it to arrays; returns the arrays of the tuple that was returned."""
        arrays = self._run(args)
        return tuple([arrays[slot] for slot, *_ in self._result[1]])

    def _run(self, args: Sequence[Any]) -> list[Any]:
        arrays = [*args, *self._constants]
        for reference, call, operands, made in self._steps:
            result = reference(call, *[arrays[k] for k in operands])
            if result.__class__ is tuple:
                for k, array in zip(made, result, strict=True):
                    arrays[k] = array
            elif made:
                arrays[made[0]] = result
        return arrays


def _filled(template: Any, arrays: Sequence[Any], remember: Remember) -> Any:
    if template.__class__ is tuple:
        slot, ir, type_, factors = template
        value = EagerValue(ir, arrays[slot])
        if factors:
            remember(value, [EagerValue(ir, arrays[k]) for k in factors])
        return tensor(value, type_)
    if template is None:
        return None
    return template[0]([_filled(part, arrays, remember) for part in template[1]])
