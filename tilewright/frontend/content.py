"""Content of compile-time values: what they hold, to any depth, as bytes that are the same in every process.

Numbers, text and data types count by value; tuples, dictionaries, enumerations and instances of Python classes by
what is in them and by the methods of their class; Python functions by their code, their defaults, and the globals and
closure variables that they read. The standard library, numpy, torch and Tilewright itself count by name. What is left
(locks, open files, generators) has no content, and `Content.missing` names it.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import enum
import functools
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.base.attributes import attributes_of
from tilewright.base.builtin import Builtin
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import Type
from tilewright.base.errors import TilewrightError
from tilewright.base.library import hashlib
from tilewright.base.naming import home_of, name_at_home
from tilewright.base.stack import deep_calls
from tilewright.frontend.names import references
from tilewright.frontend.source import Cells, Scope, source_of
from tilewright.language.library import ConstexprFunction
from tilewright.ops.values import constexpr

Chain = tuple[str, ...]
_ATTRIBUTE = "_kernel_hash"
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented)})
_STANDARD = os.path.dirname(os.__file__)
_BY_NAME = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_CACHED = type(functools.cache(lambda: None))
_UNREAD = frozenset({
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__",
    "__dataclass_fields__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__",
    "__abstractmethods__", "_abc_impl", "__match_args__", "__orig_bases__", "__parameters__",
    "__slotnames__",  # which copies and pickles leave in the class
})  # fmt: skip
_MOST_PARTS = 20_000


class GlobalsChangedError(TilewrightError, RuntimeError):
    """A global or closure variable that a kernel was compiled with has another value now."""


@dataclass(frozen=True, slots=True)
class UsedGlobal:
    """A variable outside of a kernel, read by it or by something that it calls.

    Args:
        name: name in its namespace.
        namespace: the globals, the attributes of a class, or the closure that holds it.
        value: its value when the kernel was hashed.
        held: what it stood for: the value of a `constexpr`, otherwise `value` itself.
        digest: of its content, where that can change in place; else "".
    """

    name: str
    namespace: Mapping[str, Any]
    value: Any
    held: Any
    digest: str

    @classmethod
    def of(cls, name: str, namespace: Mapping[str, Any], value: Any) -> UsedGlobal:
        """The variable as it is now."""
        held = _held(value)
        shown = constexpr(held) if isinstance(value, constexpr) else value  # a constexpr may change in place
        return cls(name, namespace, shown, held, "" if is_immutable(held) else _own_digest(held))

    def changed(self) -> bool:
        """Whether the variable has another value, or another content, now."""
        now = _held(self.namespace.get(self.name))
        return (now is not self.held or self.digest != "") and _own_digest(now) != self._digest()

    def differs_from(self, other: UsedGlobal) -> bool:
        """Whether the value differs from that which another walk found."""
        return (self.held is not other.held or self.digest != "") and self._digest() != other._digest()

    def _digest(self) -> str:
        return self.digest or _own_digest(self.held)


def _own_digest(value: Any) -> str:
    """Hash of what a variable holds, to see that it changes. What block functions in it read are variables of their
    own, and may be this one."""
    content = Content(by_text=True)
    content.value(value)
    return content.hexdigest()


def _held(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value


def is_immutable(value: Any) -> bool:
    """Whether a value surely holds the same for ever; functions and classes count as such."""
    if type(value) is tuple:
        return all(map(is_immutable, value))
    return type(value) in _PLAIN or isinstance(
        value, (Type, Builtin, BlockFunction, type, enum.Enum, types.FunctionType, types.BuiltinFunctionType)
    )


def digest_of(value: Any) -> tuple[str, str]:
    """Hash of the content of a value, and what in it has none ("" where all has)."""
    content = Content()
    content.value(value)
    return content.hexdigest(), content.missing


ConstexprFunction.digest_of = staticmethod(digest_of)


@functools.cache
def is_library(module: str) -> bool:
    """Whether a module is of the standard library, numpy, torch or Tilewright: its parts count by name."""
    top = module.partition(".")[0]
    if top in ("builtins", "tilewright", "numpy", "torch"):
        return True
    if top not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(top), "__file__", None)  # a user's file may have the name of a standard module
    return file is None or (file.startswith(_STANDARD) and "-packages" not in file)


@dataclass(slots=True)
class FunctionHash:
    """Hash of one block function with the variables that it depends on, its callees' included.

    Args:
        digest: of its text and of everything that it uses, line numbers and names of modules included.
        lasting: the same without these.
        used: the variables.
        missing: what of it has no content, or "".
        unfinished: callers met again by recursion, whose text is not in yet.
        files: where it and the functions that it uses are written, by their qualified names.
    """

    digest: str
    lasting: str
    used: dict[tuple[str, int], UsedGlobal] = field(default_factory=dict)
    missing: str = ""
    unfinished: frozenset[BlockFunction] = frozenset()
    files: dict[str, str] = field(default_factory=dict)


def hash_function(fn: BlockFunction, active: tuple[BlockFunction, ...] = ()) -> FunctionHash:
    """The hash of `fn`, made once; `active` are the functions whose hashes are being made."""
    known = fn.__dict__.get(_ATTRIBUTE)
    if known is not None:
        return known  # type: ignore[no-any-return]
    if fn in active:  # recursion: the function's text is already being hashed
        name = f"recursive:{fn.fn.__qualname__}"
        return FunctionHash(name, name, unfinished=frozenset({fn}))
    if not active:
        with deep_calls():
            return _hash_function(fn, ())
    return _hash_function(fn, active)


def _hash_function(fn: BlockFunction, active: tuple[BlockFunction, ...]) -> FunctionHash:
    source = source_of(fn)
    walk = Content((*active, fn))
    own = (fn.fn.__module__ or "").startswith("tilewright.")  # code made by `exec` may have no module
    name = f"{fn.fn.__module__}.{source.name}"
    walk.files[name] = source.file
    walk.text(f"{name}:{source.first_line}:{fn.noinline}", name if own else f"{source.name}:{fn.noinline}")
    if not own:
        walk.text(source.text)
        for name, parameter in fn.signature.parameters.items():
            if parameter.default is not parameter.empty:
                walk.text(name)
                walk.value(parameter.default)
        for chain in references(source.tree):
            walk.reference(source, chain)
    result = FunctionHash(
        walk.hexdigest(), walk.lasting_digest(), walk.used, walk.missing, frozenset(walk.unfinished - {fn}), walk.files
    )
    if not result.unfinished:
        fn.__dict__[_ATTRIBUTE] = result
    return result


def resolve_name(source: Scope, name: str) -> tuple[Mapping[str, Any], Any] | None:
    """The namespace that holds a free name of a function and its value; closures come before globals."""
    for namespace in (source.closure, source.globals):
        if name in namespace:
            return namespace, namespace[name]
    return None


class Content:
    """Feeds values into a hash.

    Args:
        active: the block functions whose hashes are being made, outermost first.
        by_text: block functions count by their text alone, without what they use.

    Attributes:
        used: the variables read on the way, by name and namespace.
        unfinished: block functions of `active` met again by recursion.
        missing: the first part met that has no content, in words; "" if all parts have.
        files: paths of the functions met, by their qualified names.
    """

    def __init__(self, active: tuple[BlockFunction, ...] = (), by_text: bool = False) -> None:
        self._hash, self._lasting = hashlib.sha256(), hashlib.sha256()
        self._active, self._by_text = active, by_text
        self._met: dict[int, tuple[int, Any]] = {}  # number and value, which keeps the id its own
        self._count, self.missing = 0, ""
        self.unfinished: set[BlockFunction] = set()
        self.used: dict[tuple[str, int], UsedGlobal] = {}
        self.files: dict[str, str] = {}

    def hexdigest(self) -> str:
        """The hash of everything fed so far."""
        return self._hash.hexdigest()

    def lasting_digest(self) -> str:
        """The same without line numbers and names of modules."""
        return self._lasting.hexdigest()

    def text(self, text: str, lasting: str | None = None) -> None:
        """Feed text, and `lasting` in its place to the hash that lasts."""
        self._hash.update(text.encode(errors="surrogatepass") + b"\0")
        self._lasting.update((text if lasting is None else lasting).encode(errors="surrogatepass") + b"\0")

    def value(self, value: Any) -> None:
        """Feed a value by type and content."""
        value = value.value if isinstance(value, constexpr) else value
        kind = type(value)
        if kind in _PLAIN:
            self.text(f"{kind.__name__}:{value!r}")
            return
        if id(value) in self._met:
            self.text(f"again {self._met[id(value)][0]}")
            return
        if self._count >= _MOST_PARTS:
            self.has_none("an object of more than 20,000 parts")
            return
        self._count += 1
        self._met[id(value)] = self._count, value
        feed = next((feed for kinds, feed in _FEEDS if isinstance(value, kinds)), Content._instance)
        feed(self, value)
        if isinstance(value, (tuple, list, set, frozenset, dict)):
            del self._met[id(value)]  # equal parts count alike, whether they are one object or two

    def part(self, value: Any) -> Content:
        """The content of a value by itself, in which block functions count as they do here."""
        content = Content(self._active, self._by_text)
        content.value(value)
        self._take(content)
        return content

    def has_none(self, what: str) -> None:
        """Note a part without content."""
        self.missing = self.missing or what
        self.text("no content")

    # --- functions and classes -----------------------------------------------------------------------------------

    def block_function(self, value: BlockFunction) -> None:
        """Feed a block function by its hash, and take over what it read."""
        if self._by_text:
            self.text(f"{value.fn.__module__}.{value.fn.__qualname__}:{value.noinline} {source_of(value).text}")
            return
        inner = hash_function(value, self._active)
        self.text(inner.digest, inner.lasting)
        self.missing = self.missing or inner.missing
        self._take(inner)

    def _take(self, other: Content | FunctionHash) -> None:
        self.unfinished |= other.unfinished
        self.files |= other.files
        for entry in other.used.values():
            self.use(entry)

    def reference(self, source: Scope, chain: Chain) -> None:
        """Feed what a dotted name in a block function leads to; local names and Python's own lead nowhere."""
        found = resolve_name(source, chain[0])
        if found is None:
            return
        namespace, name, value, ours = follow(chain, found[0])
        if ours or isinstance(value, types.ModuleType) or _is_ours(value) or value is getattr(builtins, name, builtins):
            return
        self.text(".".join(chain))
        self.value(value)
        self.use(UsedGlobal.of(name, namespace, value))

    def function(self, value: types.FunctionType) -> None:
        """Feed a Python function: its code, defaults and closure, and the globals that it reads."""
        library = is_library(value.__globals__.get("__name__") or "")
        name = f"{home_of(value)}.{name_at_home(value)}"
        self.text(name, name if library else value.__qualname__)
        if library:
            return
        self.files[name] = value.__code__.co_filename
        self.value(value.__defaults__)
        self.value(value.__kwdefaults__)
        self._code(value.__code__)
        cells = Cells(value)
        for name in cells:
            self._read((name,), cells)
        for chain in sorted(globals_read(value.__code__)):
            if chain[0] in value.__globals__:
                self._read(chain, value.__globals__)
        for imported in sorted(_imports(value.__code__)):
            if not is_library(imported):
                self.has_none(f"the module {imported}, which {value.__qualname__} imports")

    def _code(self, code: types.CodeType) -> None:
        self.text(f"{code.co_code.hex()} {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags}")
        self.value((code.co_names, code.co_varnames, code.co_freevars))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant)
            else:
                self.value(constant)

    def _read(self, chain: Chain, space: Mapping[str, Any]) -> None:
        """Feed what a dotted name in a Python function leads to.

        Changes of what may change in place (a table that the function fills) are its own business.
        """
        namespace, name, value, _ = follow(chain, space)
        self.text(".".join(chain))
        self.value(value)
        if is_immutable(_held(value)):
            self.use(UsedGlobal.of(name, namespace, value))

    def use(self, entry: UsedGlobal) -> None:
        """Remember a variable: code made with its value must not run when it has another.

        Raises:
            GlobalsChangedError: a callee was hashed earlier, when it had another.
        """
        before = self.used.setdefault((entry.name, id(entry.namespace)), entry)
        if before is not entry and before.differs_from(entry):
            compiled = self._active[-1].fn.__qualname__ if self._active else "a kernel"
            raise GlobalsChangedError(
                f"Global variable {entry.name} has value {before.value!r} when compiling "
                f"{compiled}, but an inner kernel has conflicting value {entry.value!r} "
                "from when it was first compiled",
                hint="do not change globals between the compilations of kernels that share them",
            )

    def a_class(self, cls: type) -> None:
        """Feed what a kernel can reach of a class: its fields, constants, methods and properties, and its bases."""
        library, name = is_library(home_of(cls)), f"{home_of(cls)}.{name_at_home(cls)}"
        self.text(name, name if library else cls.__qualname__)
        if library:
            return
        self.value(cls.__bases__)
        self.value(_annotations(cls))
        if issubclass(cls, enum.Enum):
            self.value([(name, member.value) for name, member in cls.__members__.items()])
        for name, member in sorted(vars(cls).items()):
            if name not in _UNREAD and not _is_generated(cls, name, member):
                self.text(name)
                self.value(member)

    # --- instances -------------------------------------------------------------------------------------------------

    def _instance(self, value: Any) -> None:
        """Feed an object by its class and its attributes, or as it is pickled where its class is not of Python."""
        cls = type(value)
        self.value(cls)
        number_or_text = next((base for base in (int, float, complex, str, bytes) if isinstance(value, base)), None)
        if number_or_text is not None:
            self.text(number_or_text.__repr__(value))
        attributes = attributes_of(value)
        if hasattr(value, "data_ptr"):  # the memory of an array is no constant
            self.has_none(f"a {cls.__module__}.{cls.__qualname__}")
        elif attributes or not is_library(home_of(cls)):
            self.value(attributes)
        else:
            self._pickled(value)

    def _pickled(self, value: Any) -> None:
        try:
            made = value.__reduce_ex__(4)
        except Exception:  # whatever its class raises for what cannot be pickled
            self.has_none(f"a {type(value).__module__}.{type(value).__qualname__}")
            return
        if isinstance(made, str):
            self.text(made)
            return
        for part in made:
            self.value(list(part) if isinstance(part, Iterator) else part)


# --- one row per kind of value ------------------------------------------------------------------------------------


def _feed_type(content: Content, value: Type) -> None:
    fields = getattr(value, "__dataclass_fields__", ())
    if fields:  # their text would have the name of the class in it, which is another one in a process that poses
        content.text(f"{name_at_home(type(value))}")
        for name in fields:
            content.value(getattr(value, name))
    else:
        content.text(f"{name_at_home(type(value))}:{value.name}")
    if hasattr(value, "value") and not callable(value.value):  # the type of a constant
        content.value(value.value if value.value is not value else None)


def _feed_builtin(content: Content, value: Builtin) -> None:
    content.text(f"builtin {value.__name__}")
    if not _is_ours(value):
        content.value(inspect.unwrap(value.fn))


def _is_ours(value: Any) -> bool:
    return isinstance(value, Builtin) and is_library(value.fn.__module__ or "")


def _feed_constexpr_function(content: Content, value: Any) -> None:
    content.text("constexpr_function")
    content.value(value.fn)


def _feed_enum(content: Content, value: enum.Enum) -> None:
    content.value(type(value))
    content.text(value.name)


def _feed_module(content: Content, value: types.ModuleType) -> None:
    content.text(f"module {value.__name__}")
    if not is_library(value.__name__):
        content.has_none(f"the module {value.__name__}")


def _feed_parts(kind: str, parts: Callable[[Any], Any]) -> Callable[[Content, Any], None]:
    """Feeds a value as `kind` and the values that `parts` takes it apart into."""

    def feed(content: Content, value: Any) -> None:
        items = list(parts(value))
        content.text(f"{kind} {len(items)}")
        if not is_library(home_of(type(value))):
            content.value(type(value))
        for item in items:
            content.value(item)

    return feed


def _feed_sequence(content: Content, value: tuple[Any, ...] | list[Any]) -> None:
    fields = getattr(type(value), "_fields", None)
    content.text(f"{type(value).__qualname__} {len(value)} {fields or ''}")
    if not is_library(home_of(type(value))):  # a named tuple has methods
        content.value(type(value))
    for part in value:
        content.value(part)


def _feed_set(content: Content, value: frozenset[Any] | set[Any]) -> None:
    parts = [content.part(part) for part in value]
    content.text(f"{type(value).__qualname__} {sorted(part.hexdigest() for part in parts)}")
    content.missing = content.missing or next(filter(None, (part.missing for part in parts)), "")


def _feed_array(content: Content, value: Any) -> None:
    content.text(f"{type(value).__qualname__} {value.dtype} {value.shape}")
    if value.dtype.hasobject:
        content.value(value.tolist())
    else:
        content.text(hashlib.sha256(value.tobytes()).hexdigest())


_FEEDS: tuple[tuple[Any, Callable[[Content, Any], None]], ...] = (
    (Type, _feed_type),
    (BlockFunction, lambda content, value: content.block_function(value)),
    (Builtin, _feed_builtin),
    (ConstexprFunction, _feed_constexpr_function),
    (enum.Enum, _feed_enum),
    (type, Content.a_class),
    (types.FunctionType, Content.function),
    (types.ModuleType, _feed_module),
    (types.MethodType, _feed_parts("method", lambda v: (v.__func__, v.__self__))),
    ((staticmethod, classmethod), _feed_parts("wrapped", lambda v: (type(v).__name__, v.__func__))),
    (property, _feed_parts("property", lambda v: (v.fget, v.fset))),
    (functools.cached_property, _feed_parts("cached_property", lambda v: (v.func,))),
    (functools.partial, _feed_parts("partial", lambda v: (v.func, v.args, v.keywords))),
    (_CACHED, _feed_parts("cached", lambda v: (v.__wrapped__,))),
    (_BY_NAME, _feed_parts("compiled", lambda v: (getattr(v, "__module__", None), v.__qualname__))),
    ((tuple, list), _feed_sequence),
    ((set, frozenset), _feed_set),
    ((dict, types.MappingProxyType), _feed_parts("mapping", lambda v: v.items())),
    ((range, slice), lambda content, value: content.text(repr(value))),
    ((np.ndarray, np.generic), _feed_array),
)


def _annotations(cls: type) -> dict[str, Any]:
    try:
        return inspect.get_annotations(cls)
    except NameError:  # names for type checkers only
        return {}


def _is_generated(cls: type, name: str, member: Any) -> bool:
    """Whether a member is made from the rest of the class: a method of a dataclass, a slot, a field."""
    if isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType)):
        return True
    if name.startswith("_") and (issubclass(cls, enum.Enum) or hasattr(cls, "_fields")):
        return True
    if type(member).__name__ == "_tuplegetter":
        return True
    code = getattr(inspect.unwrap(member) if callable(member) else member, "__code__", None)
    return code is not None and dataclasses.is_dataclass(cls) and code.co_filename == "<string>"


class _Attributes(Mapping[str, Any]):
    """The attributes of a class, inherited ones too, as they are at the moment."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self._cls, name)
        except AttributeError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(dir(self._cls))

    def __len__(self) -> int:
        return len(dir(self._cls))


def follow(chain: Chain, space: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, Any, bool]:
    """Where a dotted name leads through modules and classes.

    Args:
        chain: the parts of the name.
        space: the namespace of the first.

    Returns:
        The namespace that holds the value, its name there, the value, and whether Tilewright's own names were reached,
        which count by themselves.
    """
    namespace, name, rest = space, chain[0], list(chain[1:])
    value = space.get(name)
    while isinstance(value, (types.ModuleType, type)):
        home = value.__name__ if isinstance(value, types.ModuleType) else home_of(value)
        if home.partition(".")[0] == "tilewright":
            return namespace, name, value, True
        if not rest:
            break
        name = rest.pop(0)
        namespace = vars(value) if isinstance(value, types.ModuleType) else _Attributes(value)
        value = namespace.get(name)
    return namespace, name, value, False


def globals_read(code: types.CodeType) -> set[Chain]:
    """Dotted names that begin with a global, read by a function or by those inside of it.

    Args:
        code: of the function.
    """
    found: set[Chain] = set()
    chain: Chain = ()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found.add(chain)
            chain = (step.argval,)
        elif chain and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            chain = (*chain, step.argval)
        elif step.opname not in ("EXTENDED_ARG", "CACHE", "PUSH_NULL"):
            found.add(chain)
            chain = ()
    inner = [globals_read(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return found.union({chain}, *inner) - {()}


def _imports(code: types.CodeType) -> set[str]:
    """Modules imported by a function or by those inside of it."""
    own = {str(step.argval) for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME"}
    return own.union(*(_imports(c) for c in code.co_consts if isinstance(c, types.CodeType)))
