"""Content hash of a block function: its source, everything that it calls, and the globals that it uses.

Two processes that see the same text and the same constants get the same hash, which names the
entry of the disk cache. The globals found on the way are remembered: a kernel compiled with one
value must not be launched with another.
"""

from __future__ import annotations

import builtins
import enum
import hashlib
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import Type
from tilewright.base.errors import TilewrightError
from tilewright.frontend.names import references
from tilewright.frontend.source import KernelSource, source_of
from tilewright.frontend.structure import record_fields
from tilewright.ops.builtin import Builtin
from tilewright.ops.values import constexpr

_ATTRIBUTE = "_kernel_hash"
_OWN = "tilewright."


class GlobalsChangedError(TilewrightError, RuntimeError):
    """A global that a kernel was compiled with has another value now."""


@dataclass(frozen=True, slots=True)
class UsedGlobal:
    """A global read by a kernel or by something that it calls.

    Args:
        name: name in its namespace.
        namespace: the globals (or a snapshot of the closure) that held it.
        value: its value when the kernel was hashed.
    """

    name: str
    namespace: Mapping[str, Any]
    value: Any

    def changed(self) -> bool:
        now = self.namespace.get(self.name)
        return now is not self.value and not _same(now, self.value)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    try:
        return bool(a == b)
    except Exception:  # an object whose comparison fails is not known to be the same
        return False


@dataclass(slots=True)
class FunctionHash:
    """Hashes of one function with the globals that it depends on, its callees' included.

    Args:
        digest: of what is compiled, places in the source included.
        lasting: the same without line numbers and names of modules.
        used: the globals.
        unfinished: see below.
    """

    digest: str
    lasting: str
    used: dict[tuple[str, int], UsedGlobal] = field(default_factory=dict)
    unfinished: frozenset[BlockFunction] = frozenset()  # callers met again by recursion: their text is not in yet


def content_hash(fn: BlockFunction) -> str:
    """Hash of the source of `fn`, of what it calls and of the constants it uses.

    Functions of Tilewright's own library count by name: the fingerprint of the package, which
    is a part of every cache key, covers their text.

    Raises:
        GlobalsChangedError: a callee was hashed earlier with another value of a global.
    """
    return _hash_function(fn, ()).digest


def lasting_hash(fn: BlockFunction) -> str:
    """A `content_hash` that moves with the kernel: to another line, another file, another module.

    It names things that outlive a process and a file, such as operators in saved programs. Compiled code is not named
    by it: messages of assertions in there hold line numbers.
    """
    return _hash_function(fn, ()).lasting


def class_digest(cls: type) -> str:
    """Hash of a class whose instances kernels get: its fields and the text of its methods."""
    walk = _Walk(())
    walk.user_class(cls)
    return walk.hash.hexdigest()[:16]


def used_globals(fn: BlockFunction) -> list[UsedGlobal]:
    """The globals whose values are part of :func:`content_hash`."""
    return list(_hash_function(fn, ()).used.values())


def check_globals(fn: BlockFunction) -> None:
    """Raise `GlobalsChangedError` if a global used by `fn` has changed since it was hashed."""
    for entry in _hash_function(fn, ()).used.values():
        if entry.changed():
            raise GlobalsChangedError(
                f"Global variable {entry.name} has changed since we compiled this kernel, "
                f"from {entry.value!r} to {entry.namespace.get(entry.name)!r}",
                hint="pass a value that changes as a tl.constexpr parameter",
            )


def _hash_function(fn: BlockFunction, active: tuple[BlockFunction, ...]) -> FunctionHash:
    known = fn.__dict__.get(_ATTRIBUTE)
    if known is not None:
        return known  # type: ignore[no-any-return]
    if fn in active:  # recursion: the function's text is already being hashed
        name = f"recursive:{fn.fn.__qualname__}"
        return FunctionHash(name, name, unfinished=frozenset({fn}))
    source = source_of(fn)
    walk = _Walk((*active, fn))
    own = (fn.fn.__module__ or "").startswith(_OWN)  # code made by `exec` may have none
    place, lasting = f"{fn.fn.__module__}.{source.name}", f"{source.name}:{fn.noinline}"
    walk.text(f"{place}:{source.first_line}:{fn.noinline}", place if own else lasting)
    if not own:
        walk.text(source.text)
        for name, parameter in fn.signature.parameters.items():
            if parameter.default is not parameter.empty:
                walk.text(name)
                walk.value(parameter.default)
        for chain in references(source.tree):
            walk.reference(source, chain)
    digests = walk.hash.hexdigest(), walk.lasting.hexdigest()
    result = FunctionHash(*digests, walk.used, frozenset(walk.unfinished - {fn}))
    if not result.unfinished:
        fn.__dict__[_ATTRIBUTE] = result
    return result


def resolve_name(source: KernelSource, name: str) -> tuple[Mapping[str, Any], Any] | None:
    """The namespace that holds a free name of a function and its value; closures come before globals."""
    for namespace in (source.closure, source.globals):
        if name in namespace:
            return namespace, namespace[name]
    return None


class _Walk:
    """Feeds one function's parts into its hash."""

    def __init__(self, active: tuple[BlockFunction, ...]) -> None:
        self.active = active
        self.hash, self.lasting = hashlib.sha256(), hashlib.sha256()
        self.used: dict[tuple[str, int], UsedGlobal] = {}
        self.unfinished: set[BlockFunction] = set()
        self.classes: set[type] = set()

    def text(self, text: str, lasting: str | None = None) -> None:
        """Hash a piece of text, and for the lasting hash `lasting` in its place."""
        self.hash.update(text.encode() + b"\0")
        self.lasting.update((text if lasting is None else lasting).encode() + b"\0")

    def reference(self, source: KernelSource, chain: tuple[str, ...]) -> None:
        """Hash what a dotted name leads to; names that are local or Python's own lead nowhere."""
        found = resolve_name(source, chain[0])
        if found is None:
            return
        namespace, value = found
        name, rest = chain[0], list(chain[1:])
        while isinstance(value, (types.ModuleType, type)) and rest:
            if (value.__name__ if isinstance(value, types.ModuleType) else value.__module__).startswith(_OWN):
                return
            namespace, name = value.__dict__, rest.pop(0)
            value = getattr(value, name, None)
        if isinstance(value, (types.ModuleType, Builtin)) or value is getattr(builtins, name, builtins):
            return
        self.text(".".join(chain))
        self.value(value)
        if isinstance(value, constexpr) or not callable(value):  # functions are hashed by content
            self._use(UsedGlobal(name, namespace, value))

    def value(self, value: Any) -> None:
        """Hash a constant by type and content."""
        if isinstance(value, BlockFunction):
            inner = _hash_function(value, self.active)
            self.text(inner.digest, inner.lasting)
            self.unfinished |= inner.unfinished
            for entry in inner.used.values():
                self._use(entry)
        elif isinstance(value, constexpr):
            self.value(value.value)
        elif isinstance(value, enum.Enum):
            self.text(f"{type(value).__qualname__}.{value.name}")
            self.value(value.value)
        elif isinstance(value, (tuple, list)):
            self.text(f"{type(value).__qualname__}{len(value)}")
            for part in value:
                self.value(part)
        elif isinstance(value, Mapping):
            self.value([part for item in value.items() for part in item])
        elif isinstance(value, type) and not value.__module__.startswith((_OWN, "builtins", "numpy", "torch")):
            self.user_class(value)
        elif not isinstance(value, type) and record_fields(type(value)) is not None:
            self.value(type(value))
            self.value([getattr(value, name) for name in record_fields(type(value)) or ()])
        elif isinstance(value, property):
            self.value(value.fget)
        elif isinstance(value, (type, Builtin)) or (callable(value) and not isinstance(value, Type)):
            body = _callable_text(value)
            self.text(f"{getattr(value, '__module__', '')}.{body}", body)
        else:
            self.text(f"{type(value).__qualname__}:{value!r}")

    def user_class(self, cls: type) -> None:
        """Hash what a kernel can reach of a class: its fields, and its methods, which are compiled into the kernel."""
        self.text(f"{cls.__module__}.{cls.__qualname__}", cls.__qualname__)
        for base in cls.__mro__:
            if base in self.classes or base.__module__ == "builtins":
                continue
            self.classes.add(base)
            for name, member in sorted(vars(base).items()):
                if not name.startswith("__") or name in ("__init__", "__getitem__", "__annotations__"):
                    self.text(name)
                    self.value(member)

    def _use(self, entry: UsedGlobal) -> None:
        key = (entry.name, id(entry.namespace))
        before = self.used.setdefault(key, entry)
        if before.value is not entry.value and not _same(before.value, entry.value):
            raise GlobalsChangedError(
                f"Global variable {entry.name} has value {before.value!r} when compiling "
                f"{self.active[-1].fn.__qualname__}, but an inner kernel has conflicting value {entry.value!r} "
                "from when it was first compiled",
                hint="do not change globals between the compilations of kernels that share them",
            )


def _callable_text(value: Callable[..., Any]) -> str:
    """A Python function or class: its name and, where it has one, its code."""
    function = getattr(value, "fn", value)
    code = getattr(function, "__code__", None)
    body = ""
    if code is not None:
        constants = [c for c in code.co_consts if not isinstance(c, types.CodeType)]
        body = f"{code.co_code.hex()}:{constants!r}:{code.co_names!r}"
    return f"{getattr(value, '__qualname__', repr(value))}:{body}"
