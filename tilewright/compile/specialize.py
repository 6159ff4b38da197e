"""What a kernel is specialised on: the type and a few facts of each argument.

A pointer is keyed by its element type and by being divisible by 16, an integer by its width, by being 1 (it then
becomes a compile-time constant) and by being divisible by 16. Everything here is pure data and knows no array
library: `args.py` says what an array is. The rules are Triton's (its 3.9 surface), so that kernels specialise alike.
"""

from __future__ import annotations

import copy
import enum
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import PointerType, dtype, scalar_from_signature
from tilewright.base.errors import ArgumentError, IntegerRangeError
from tilewright.devices.arrays import Array
from tilewright.frontend.content import digest_of, is_immutable
from tilewright.ops.tensor_descriptor import tensor_descriptor

CONSTEXPR = "constexpr"
DIVISIBLE = "D"
DIVISIBILITY, VALUE = "tt.divisibility", "tilewright.value"
"""Facts of a written signature: a divisor of the argument; the integer that was passed, where torch asks."""
STAND_IN = 2
"""What torch passes instead of a symbolic size when it asks for the effects of a kernel."""
ALIGNMENT = 16

Path = tuple[int, ...]
SlotType = Any  # str, or a tuple of SlotType for a tuple argument
Key = Any

PYTHON_TYPES = {"int": "i32", "float": "fp32", "bool": "u1"}
_PREFIXES = ("triton.language.", "tilewright.language.", "language.", "tl.")


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a kernel, as its signature declares it.

    Args:
        index: position.
        name: as written.
        kind: `inspect.Parameter.kind`.
        default: `inspect.Parameter.empty` when there is none.
        annotation: as text: the signature type or the name that it stands for ("fp32", "constexpr"), or "".
        is_constexpr: annotated `tl.constexpr`.
        is_const: a pointer that the kernel may not store through.
        fixed_type: signature type that the annotation fixes, or "".
        specialize: fold 1 and key on divisibility.
        specialize_alignment: key on divisibility.
    """

    index: int
    name: str
    kind: inspect._ParameterKind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    default: Any = inspect.Parameter.empty
    annotation: str = ""
    is_constexpr: bool = False
    is_const: bool = False
    fixed_type: str = ""
    specialize: bool = True
    specialize_alignment: bool = True

    @property
    def has_default(self) -> bool:
        return self.default is not inspect.Parameter.empty

    # the names that Triton has for the same

    @property
    def num(self) -> int:
        return self.index

    @property
    def do_not_specialize(self) -> bool:
        return not self.specialize

    @property
    def do_not_specialize_on_alignment(self) -> bool:
        return not self.specialize_alignment

    @property
    def annotation_type(self) -> str:
        return self.fixed_type


def parse_params(
    signature: inspect.Signature,
    do_not_specialize: Iterable[int | str] | None = None,
    do_not_specialize_on_alignment: Iterable[int | str] | None = None,
) -> tuple[Param, ...]:
    """Read the parameters of a kernel.

    Args:
        signature: of the Python function.
        do_not_specialize: names or indices of parameters that are not keyed by value at all.
        do_not_specialize_on_alignment: those that are not keyed by divisibility.

    Raises:
        ArgumentError: a `**` parameter, or a `constexpr` parameter in one of the two lists.
    """
    plain, unaligned = set(do_not_specialize or ()), set(do_not_specialize_on_alignment or ())
    params = []
    for index, (name, param) in enumerate(signature.parameters.items()):
        if param.kind is inspect.Parameter.VAR_KEYWORD:
            raise ArgumentError("JIT functions do not support **kw parameters", hint=f"spell out what **{name} takes")
        text = _annotation_text(param.annotation)
        is_constexpr = CONSTEXPR in text
        not_specialized, not_aligned = bool({index, name} & plain), bool({index, name} & unaligned)
        if is_constexpr and (not_specialized or not_aligned):
            raise ArgumentError(
                f"{name} marked as constexpr and listed in do_not_specialize/do_not_specialize_on_alignment",
                hint="constexpr parameters are always specialised; take it off one of the two",
            )
        fixed = "" if is_constexpr else _fixed_type(text)
        is_const = fixed.startswith("*k") or text.split(".")[-1] == "const"
        params.append(
            Param(
                index,
                name,
                param.kind,
                param.default,
                CONSTEXPR if is_constexpr else fixed or _unqualified(text),
                is_constexpr,
                is_const,
                fixed,
                not not_specialized,
                not (not_specialized or not_aligned),
            )
        )
    return tuple(params)


def _annotation_text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation.strip().strip("'\"")
    if isinstance(annotation, (dtype, PointerType)):
        return annotation.signature
    return str(getattr(annotation, "__name__", "") or getattr(type(annotation), "__name__", ""))


def _unqualified(text: str) -> str:
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    return text


def _fixed_type(text: str) -> str:
    """Signature type named by an annotation, or "" when it names none."""
    text = _unqualified(text)
    if text in PYTHON_TYPES:
        return PYTHON_TYPES[text]
    if text.endswith("*"):  # the C spelling: "const float*"
        inner = _fixed_type(text[:-1].removeprefix("const ").strip())
        return f"*{'k' if text.startswith('const ') else ''}{inner}" if inner else ""
    try:
        parsed = scalar_from_signature(text)
    except ValueError:
        return ""
    return "" if parsed.signature == "void" else parsed.signature


# --- values that are compile-time constants wherever they are passed ---------------------------

_constants: dict[type, Callable[[Any], Any] | None] = {}


def register_constant(cls: type, unwrap: Callable[[Any], Any] | None = None) -> None:
    """Have instances of `cls` (and of its subclasses) specialise as constants.

    Args:
        cls: `tl.constexpr`, jit functions.
        unwrap: gives the constant that an instance stands for; by default the instance itself.
    """
    _constants[cls] = unwrap


register_constant(enum.Enum)


def constant_of(value: Any) -> tuple[bool, Any]:
    """Whether `value` is always a constant, and the constant: itself, what it stands for, a number for numpy's."""
    for cls in type(value).__mro__:
        if cls in _constants:
            unwrap = _constants[cls]
            return True, value if unwrap is None else unwrap(value)
    return False, value.item() if isinstance(value, np.generic) else value


def constant_key(value: Any, name: str) -> Any:
    """A hashable key that is equal for equal constants only: `1`, `True` and `1.0` differ, so do the two zeros.

    Objects are keyed by their content, to any depth; those that have none (with a lock or an open file in them) by
    themselves, if they can be.

    Raises:
        ArgumentError: an object that has neither content nor a hash.
    """
    if isinstance(value, float):
        return (type(value), value.hex())
    if isinstance(value, tuple):
        return (type(value), *(constant_key(item, name) for item in value))
    if is_immutable(value):
        return (type(value), value)
    digest, missing = digest_of(value)
    if not missing:
        return (type(value), digest)
    try:
        hash(value)
    except TypeError as error:
        raise ArgumentError(
            f"constexpr argument `{name}` of type {type(value).__name__} cannot be keyed: "
            f"it has no hash, and {missing} in it has no content to compare",
            hint="give its class `__hash__` and `__eq__`, or pass only the constants that the kernel needs",
        ) from error
    warnings.warn(
        f"constexpr argument `{name}` of type {type(value).__name__} is told from others by identity, and kernels "
        f"compiled for it are not kept on disk: {missing} in it has no content to compare",
        stacklevel=2,
    )
    return (type(value), value)


# --- one argument ---------------------------------------------------------------------------------


class KeyOfInteger(str):
    """The key of an integer, which remembers the number.

    Args:
        key: the key itself, to which it is equal.
        value: the number.
    """

    value: int

    def __new__(cls, key: str, value: int) -> KeyOfInteger:
        made = super().__new__(cls, key)
        made.value = value
        return made


def specialize(value: Any, param: Param) -> tuple[SlotType, Key]:
    """Signature type and key of one argument.

    Args:
        value: what was passed, with arrays already read (`args.read`).
        param: the parameter that it binds.

    Returns:
        ("constexpr", value) for compile-time constants, (type, "D" or "") for pointers and integers,
        (type, None) for what is not keyed by value; tuples of these for tuples.

    Raises:
        ArgumentError: no type stands for the value.
        OverflowError: an integer that fits no 64-bit type.
    """
    if param.is_constexpr:
        return CONSTEXPR, _as_it_is_now(constant_of(value)[1])
    if value is None:
        return CONSTEXPR, None
    if isinstance(value, Array):
        return _specialize_pointer(value.dtype, value.address, param)
    if isinstance(value, bool):
        return (param.fixed_type or "u1"), None
    if isinstance(value, int):
        return _specialize_int(int(value), param)
    if isinstance(value, float):
        if param.fixed_type and not param.fixed_type.startswith("fp") and param.fixed_type != "bf16":
            raise ArgumentError(f"parameter `{param.name}` is annotated {param.fixed_type}, got the float {value!r}")
        return (param.fixed_type or "fp32"), None
    if isinstance(value, tensor_descriptor):
        return _specialize_descriptor(value, param)
    if isinstance(value, tuple):
        pairs = [specialize(item, param) for item in value]
        return _tuple_like(value, [p[0] for p in pairs]), _tuple_like(value, [p[1] for p in pairs])
    is_constant, constant = constant_of(value)
    if is_constant:
        return CONSTEXPR, constant
    raise ArgumentError(
        f"failed to specialize argument of type: {type(value).__name__} (parameter `{param.name}`)",
        hint=f"pass an array or a Python number, or annotate it `{param.name}: tl.constexpr`",
    )


def _as_it_is_now(value: Any) -> Any:
    """A constant that its owner cannot change any more by changing a list, set or dictionary."""
    if type(value) in (list, set, tuple):
        return type(value)(map(_as_it_is_now, value))
    return {key: _as_it_is_now(part) for key, part in value.items()} if type(value) is dict else value


def _specialize_pointer(element: str, address: int, param: Param) -> tuple[str, str | None]:
    if param.fixed_type and not param.fixed_type.startswith("*"):
        raise ArgumentError(f"parameter `{param.name}` is annotated {param.fixed_type}, got an array of {element}")
    kind = param.fixed_type or f"*{'k' if param.is_const else ''}{element}"
    if not param.specialize:
        return kind, None
    return kind, DIVISIBLE if param.specialize_alignment and address % ALIGNMENT == 0 else ""


def int_type(value: int) -> str:
    """The narrowest of i32, i64 and u64 that holds `value`.

    Raises:
        IntegerRangeError: none does.
    """
    if -(1 << 31) <= value < 1 << 31:
        return "i32"
    if -(1 << 63) <= value < 1 << 63:
        return "i64"
    if 0 <= value < 1 << 64:
        return "u64"
    raise IntegerRangeError(
        f"integer argument {value} does not fit 64 bits", hint="pass a float, or the number in parts"
    )


def is_ranged(kind: str) -> bool:
    """Whether a signature type is one of integers, which hold a range."""
    return kind.startswith(("i", "u")) and kind not in ("u1", "i1")


def integer_range(kind: str) -> tuple[int, int]:
    """The least and the largest integer of a signature type, such as `"i8"` or `"u32"`."""
    bits, signed = int(kind[1:]), kind.startswith("i")
    return (-(1 << bits - 1) if signed else 0), (1 << bits - signed) - 1


def _specialize_int(value: int, param: Param) -> tuple[str, Any]:
    fixed = param.fixed_type
    if fixed.startswith("*"):  # a raw address
        return _specialize_pointer(fixed[1:], value, param)
    if is_ranged(fixed):
        low, high = integer_range(fixed)
        if not low <= value <= high:
            raise ArgumentError(
                f"parameter `{param.name}` is annotated {fixed}, which holds {low} to {high}, got {value}",
                hint="annotate a wider type, or none: then the value says how wide it is",
            )
    kind = fixed or int_type(value)
    if not param.specialize:
        return kind, None
    if fixed:
        if not is_ranged(fixed):
            return kind, None
        if value == 1:  # a key only: an annotated parameter stays a run-time value
            return kind, 1
    elif value == 1:
        return CONSTEXPR, 1
    return kind, DIVISIBLE if param.specialize_alignment and value % ALIGNMENT == 0 else ""


def _specialize_descriptor(value: tensor_descriptor, param: Param) -> tuple[SlotType, Key]:
    """A tensor descriptor: sizes are int32, strides int64, block shape and padding constants.

    The base counts as aligned only if a tensor map can describe the tensor.
    """
    typed = [replace(param, fixed_type=kind) for kind in ("", "i32", "i64", "", "", "")]
    if not _has_map(value):
        typed[0] = replace(typed[0], specialize_alignment=False)
    pairs = [specialize(item, one) for item, one in zip(value, typed, strict=True)]
    return _tuple_like(value, [p[0] for p in pairs]), _tuple_like(value, [p[1] for p in pairs])


def _has_map(value: tensor_descriptor) -> bool:
    """Whether GPUs with a copy engine can be told where the tensor is (CUDA Driver API, cuTensorMapEncodeTiled)."""
    element = scalar_from_signature(value.base.dtype)
    assert isinstance(element, dtype)
    size = max(1, element.primitive_bitwidth // 8)
    steps = [stride * size for stride in value.strides[:-1]]
    return all(0 < step < 1 << 40 and step % ALIGNMENT == 0 for step in steps) and min(value.shape) > 0


def _tuple_like(value: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    """A tuple of the same class as `value`, so that a NamedTuple keeps its field names."""
    make: Callable[[list[Any]], tuple[Any, ...]] = getattr(value, "_make", tuple)
    return make(items)


# --- one call -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Specialization:
    """Types and keys of all arguments of a call; equal for calls that can share one compiled kernel.

    Args:
        names: of the parameters.
        types: signature type of each, nested as tuples where a tuple was passed.
        keys: key of each, nested alike.
        same: numbers of run-time parameters, each with that of one that has its address.
        meeting: the same for others that may reach each other's memory.
    """

    names: tuple[str, ...]
    types: tuple[SlotType, ...]
    keys: tuple[Key, ...]
    same: tuple[tuple[int, int], ...] = ()
    meeting: tuple[tuple[int, int], ...] = ()
    identity: Any = field(init=False, repr=False)
    _rows: tuple[tuple[str, Path, str, Key], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = tuple(
            (name, path, leaf_kind, leaf_key)
            for index, (name, kind, key) in enumerate(zip(self.names, self.types, self.keys, strict=True))
            for path, leaf_kind, leaf_key in _leaves((index,), kind, key)
        )
        keyed = [(kind, constant_key(key, name) if kind == CONSTEXPR else key) for name, _, kind, key in rows]
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "identity", (self.names, _shape(self.types), tuple(keyed), self.same, self.meeting))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Specialization) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def leaves(self) -> Sequence[tuple[str, Path, str, Key]]:
        """(parameter name, path, type, key) of each argument, tuples taken apart in order."""
        return self._rows

    @property
    def signature(self) -> dict[str, SlotType]:
        """Type by parameter name."""
        return dict(zip(self.names, self.types, strict=True))

    @property
    def constants(self) -> dict[Path, Any]:
        """Value of each compile-time constant by path."""
        return {path: key for _, path, kind, key in self.leaves() if kind == CONSTEXPR}

    @property
    def attributes(self) -> dict[Path, list[list[Any]]]:
        """Facts by path, as `[["tt.divisibility", 16]]`."""
        return {path: [[DIVISIBILITY, ALIGNMENT]] for _, path, _, key in self.leaves() if key == DIVISIBLE}

    @property
    def runtime_types(self) -> tuple[str, ...]:
        """Type of each run-time parameter in the order of the kernel's slots."""
        return tuple(kind for _, _, kind, _ in self.leaves() if kind != CONSTEXPR)

    @property
    def runtime_paths(self) -> tuple[Path, ...]:
        """Path of each run-time parameter in the order of the kernel's slots."""
        return tuple(path for _, path, kind, _ in self.leaves() if kind != CONSTEXPR)

    def text(self) -> str:
        """Stable text for the key of a disk cache; constants are in it by their content."""
        rows = []
        for name, path, kind, key in self.leaves():
            shown = f"{type(key).__name__}:{digest_of(key)[0]}" if kind == CONSTEXPR else repr(key)
            rows.append(f"{name}{list(path[1:]) or ''}:{kind}={shown}")
        shared = f"|same {self.same}, meeting {self.meeting}" if self.same or self.meeting else ""
        return ";".join(rows) + f"|{_shape(self.types)}" + shared

    def without_content(self) -> str:
        """The first part of the constants that has no content, in words; "" if all have."""
        return next(filter(None, (digest_of(value)[1] for value in self.constants.values())), "")

    def settled(self) -> Specialization:
        """The same with copies of the constants that may change in place: for a compilation that comes later."""
        if all(is_immutable(value) for value in self.constants.values()):
            return self
        made = replace(self, keys=tuple(map(_settled, self.types, self.keys)))
        return made if made == self else self

    def functions(self) -> list[BlockFunction]:
        """The block functions among the constants."""
        return [value for value in self.constants.values() if isinstance(value, BlockFunction)]


def _settled(kind: SlotType, key: Key) -> Key:
    if isinstance(kind, tuple):
        return _tuple_like(key, list(map(_settled, kind, key)))
    if kind != CONSTEXPR or is_immutable(key):
        return key
    try:
        return copy.deepcopy(key)
    except Exception:  # a lock or an open file in it: such constants are told apart by identity
        return key


def specialize_call(params: Iterable[Param], values: Iterable[Any]) -> Specialization:
    """Specialise on all arguments of a call.

    Args:
        params: of the kernel.
        values: bound to them, in order, with arrays already read.

    Raises:
        ArgumentError, OverflowError: see `specialize`.
    """
    names, types, keys = [], [], []
    for param, value in zip(params, values, strict=True):
        kind, key = specialize(value, param)
        names.append(param.name)
        types.append(kind)
        keys.append(key)
    return Specialization(tuple(names), tuple(types), tuple(keys))


def from_signature(
    params: Iterable[Param],
    signature: Mapping[str, SlotType],
    constants: Mapping[str, Any] | None = None,
    attributes: Mapping[Path, list[list[Any]]] | None = None,
) -> Specialization:
    """The specialisation that a written signature stands for (ahead-of-time compilation).

    Args:
        params: of the kernel.
        signature: type by parameter name; a parameter given in `constants` may be left out.
        constants: values of compile-time constants by name, defaults among them.
        attributes: facts by path, as `Specialization.attributes` shows them.

    Raises:
        ArgumentError: a parameter is in neither mapping.
    """
    given, facts = dict(constants or {}), dict(attributes or {})
    names, types, keys = [], [], []
    for param in params:
        if param.name in given:
            kind, key = CONSTEXPR, given[param.name]
        elif param.name in signature:
            kind = signature[param.name]
            if kind == CONSTEXPR:
                raise _without_value(param)
            key = _written_key(kind, (param.index,), facts)
        elif param.is_constexpr:
            raise _without_value(param)
        else:
            raise ArgumentError(f"the signature has no type for parameter `{param.name}`")
        names.append(param.name)
        types.append(kind)
        keys.append(key)
    return Specialization(tuple(names), tuple(types), tuple(keys))


def _without_value(param: Param) -> ArgumentError:
    default = param.default
    hint = f"constants={{'{param.name}': ...}}"
    if default is not inspect.Parameter.empty:  # PyTorch's own launcher would want the argument, too
        hint = f"a written signature takes no defaults, and torch.compile passes none on: name {param.name}={default!r}"
    return ArgumentError(f"the value of constexpr parameter `{param.name}` is missing", hint=hint)


def from_paths(
    signature: Mapping[str, SlotType], constants: Mapping[Path, Any], attributes: Mapping[Path, list[list[Any]]]
) -> Specialization:
    """The specialisation whose `signature`, `constants` and `attributes` these are."""

    def key(kind: SlotType, path: Path) -> Key:
        if isinstance(kind, tuple):
            return tuple(key(item, (*path, index)) for index, item in enumerate(kind))
        return constant_of(constants[path])[1] if kind == CONSTEXPR else _written_key(kind, path, attributes)

    keys = tuple(key(kind, (index,)) for index, kind in enumerate(signature.values()))
    return Specialization(tuple(signature), tuple(signature.values()), keys)


def _written_key(kind: SlotType, path: Path, facts: Mapping[Path, list[list[Any]]]) -> Key:
    if isinstance(kind, tuple):
        return tuple(_written_key(item, (*path, index), facts) for index, item in enumerate(kind))
    if kind == "u1" or not kind.startswith(("*", "i", "u")):
        return None
    return DIVISIBLE if any(fact == DIVISIBILITY for fact, _ in facts.get(path, ())) else ""


def _leaves(path: Path, kind: SlotType, key: Key) -> list[tuple[Path, str, Key]]:
    if not isinstance(kind, tuple):
        return [(path, kind, key)]
    items = enumerate(zip(kind, key, strict=True))
    return [leaf for at, (inner, inner_key) in items for leaf in _leaves((*path, at), inner, inner_key)]


def _shape(kind: SlotType) -> Any:
    """Nesting of tuples with their classes: two calls share code only if it is the same."""
    if isinstance(kind, tuple):
        fields = getattr(kind, "_fields", None) or type(kind).__name__
        return (fields, *["." if isinstance(item, str) else _shape(item) for item in kind])
    return "."
