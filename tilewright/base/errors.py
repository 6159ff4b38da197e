"""The one error tree.

User mistakes raise a subclass of :class:`TilewrightError` that says what is wrong,
where (file, line, excerpt, caret) and what to write instead. ``assert`` is kept for
our own bugs. Errors raised by an operation carry no location; the front end stamps it
by wrapping them in :class:`CompilationError` with the original as ``__cause__``.
"""

from __future__ import annotations

import ast
import pickle
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tilewright.base.location import Location as Location  # a public name: `tilewright.errors.Location`


class TilewrightError(Exception):
    """Root of every error that Tilewright raises on purpose.

    Args:
        message: what is wrong, with the types and shapes involved.
        hint: what to write instead; printed on a line of its own.
    """

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class KnobError(TilewrightError, ValueError):
    """A setting has a value that it cannot have; the message names the environment variable."""


class InternalError(TilewrightError):
    """A bug of Tilewright itself; the message says what to report."""


def report_with(text: str, extension: str) -> str:
    """The hint of an `InternalError` about generated text, which is kept in a file for the report."""
    import tempfile  # not needed to import the package

    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", suffix=extension, prefix="tilewright-", delete=False
    ) as file:
        file.write(text)
    return f"please report this with the file {file.name}"


class CodeLoadError(InternalError):
    """Compiled code needs something that this process does not have, such as an exported function."""


class UnsupportedError(TilewrightError, NotImplementedError):
    """A feature that this version, back end or architecture does not have."""


class RefusedNameError(UnsupportedError, AttributeError):
    """A name of Triton's that Tilewright does not have; the message says why, and what to write instead."""


# --- mistakes found by operations; the front end adds the location ------------------------


class LanguageTypeError(TilewrightError, TypeError):
    """An operation was given a value of a type it does not take."""


class LanguageValueError(TilewrightError, ValueError):
    """An operation was given a compile-time value it does not take."""


class ShapeError(LanguageValueError):
    """Shapes do not fit together."""


class DTypeError(LanguageTypeError):
    """Data types do not fit together."""


class ImmutableError(LanguageTypeError, AttributeError):
    """A field of a record that does not change was assigned."""


class NotConstexprError(LanguageTypeError):
    """A compile-time constant was needed and a run-time value was given."""


class UndefinedNameError(TilewrightError, NameError):
    """A name is not defined, or is not visible in a kernel."""


class OutsideKernelError(TilewrightError, RuntimeError):
    """A kernel or an operation of the language was called as a Python function."""


# --- located compile errors -----------------------------------------------------------------


class LocatedError(TilewrightError):
    """An error that says where it is in a kernel, around what another one found there: its `__cause__`."""

    _folded: BaseException | None = None

    @property
    def __cause__(self) -> BaseException | None:
        """The mistake as it was found.

        Where it is folded, the module `traceback` is not told of it, by which Python 3.13 and later show an error that
        nobody caught: the message says it already.
        """
        cause: BaseException | None = _CAUSE.__get__(self)
        if cause is not None or self._folded is None:
            return cause
        return None if sys._getframe(1).f_globals.get("__name__") == "traceback" else self._folded

    @__cause__.setter
    def __cause__(self, cause: BaseException | None) -> None:
        _CAUSE.__set__(self, cause)

    def says_all(self, cause: BaseException) -> bool:
        """Whether the message has all that the one of the cause would say: an error of Tilewright is quoted."""
        return isinstance(cause, TilewrightError) and not isinstance(cause, InternalError)

    def fold_cause(self) -> TracebackType | None:
        """Have Python show this error alone, if it says all; gives the traceback that the cause had."""
        cause: BaseException | None = _CAUSE.__get__(self)
        if cause is None or not self.says_all(cause):
            return None
        traceback, cause.__traceback__ = cause.__traceback__, None
        self._folded = cause
        _CAUSE.__set__(self, None)
        return traceback


_CAUSE: Any = BaseException.__dict__["__cause__"]


class CompilationError(LocatedError):
    """A kernel could not be compiled.

    Args:
        message: what is wrong; ``None`` at a call site whose callee failed (see ``__cause__``).
        location: where, with the source excerpt.
        error_message: what is wrong, for programs that raise it with Triton's three arguments: `message` is the text of
            the kernel then, `location` a node of its syntax tree, and the error says the line inside that text.
        hint: what to write instead.
    """

    def __init__(
        self,
        message: str | None,
        location: Location | ast.AST | None = None,
        error_message: str | None = None,
        *,
        hint: str | None = None,
    ) -> None:
        if error_message is not None:
            message = _at_node(message or "", location, error_message)
        super().__init__(message or "", hint=hint)
        self.location = location if isinstance(location, Location) else None

    @property
    def error_message(self) -> str:
        """The message, under Triton's name."""
        return self.message

    @property
    def src(self) -> str:
        """Text of the line of source, or ""."""
        return self.location.source_line() if self.location is not None else ""

    @property
    def node(self) -> Location | None:
        """Where the construct is that is wrong; Triton has a node of the syntax tree here."""
        return self.location

    def __str__(self) -> str:
        parts = [self.location.render()] if self.location is not None else []
        if self.message:
            parts.append(self.message)
        if self.hint:
            parts.append(f"hint: {self.hint}")
        inner = self.__cause__
        if not self.message and isinstance(inner, CompilationError):
            parts.append(str(inner))
        return "\n".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        inner = self.__cause__ if isinstance(self.__cause__, CompilationError) else None
        return (_rebuild, (type(self), self.message, self.location, self.hint, inner))


def _at_node(text: str, node: object, message: str) -> str:
    """A message with the line of a kernel's text that it is about."""
    number, lines = getattr(node, "lineno", 0), text.splitlines()
    return f"line {number}: {lines[number - 1].strip()}\n{message}" if 0 < number <= len(lines) else message


def _rebuild(
    cls: type[CompilationError],
    message: str,
    location: Location | None,
    hint: str | None,
    inner: CompilationError | None = None,
) -> CompilationError:
    made = cls(message, location, hint=hint)
    made.__cause__ = inner
    return made


class UnsupportedLanguageConstruct(CompilationError):
    """Python syntax that the block language does not have."""


class CompileTimeAssertionFailure(CompilationError):
    """``tl.static_assert`` did not hold."""


class NotDifferentiableError(CompilationError):
    """A kernel has no gradient with respect to what was asked; the message shows the operation that is in the way."""


class MissingPackageError(TilewrightError, ImportError):
    """A part of Tilewright needs a package that is not installed; the message says how to get it."""


class PosingError(TilewrightError, ImportError):
    """Tilewright cannot stand in for a module of Triton's, or the real Triton is in its way."""


class VerificationError(TilewrightError):
    """Tile IR breaks a rule of its level; the message names the operation."""


class ParseError(TilewrightError):
    """Text given as tile IR does not parse."""


# --- mistakes at launch ------------------------------------------------------------------------


class LaunchError(TilewrightError):
    """Root of the errors raised when a kernel is launched."""


class ArgumentError(LaunchError, TypeError):
    """A kernel was given missing, extra or unusable arguments."""


class MissingKernelSourceError(ArgumentError):
    """A process that was sent a kernel by name does not find it: its `__main__` or its files are others."""


class UnknownOptionError(ArgumentError, KeyError):
    """A keyword is neither a parameter of the kernel nor a launch option."""

    __str__ = TilewrightError.__str__


class NotCompiledError(LaunchError):
    """A launch needs a variant that is not there, and nothing may be compiled; the message says what differs."""


class BundleError(LaunchError):
    """A bundle of compiled kernels is no bundle, is damaged, or was made for another version or target."""


class NotPickledError(LaunchError, pickle.PicklingError, TypeError):
    """Something was pickled that lives in one process; the message says what to send instead."""


class OutOfMemoryError(LaunchError, MemoryError):
    """This process may have no more memory: its limit, or the machine's, is reached."""


class IntegerRangeError(ArgumentError, OverflowError):
    """A whole number was passed that 64 bits do not hold."""


class GridError(LaunchError, ValueError):
    """The launch grid is not one to three non-negative integers."""


class DeviceError(LaunchError, ValueError):
    """An argument lives on a device that the target cannot reach."""


class GradientError(TilewrightError, RuntimeError):
    """A kernel was launched on tensors that require gradients, which do not flow through it."""


class ReadOnlyError(LaunchError, ValueError):
    """A kernel stores to an array that is read-only."""


class DeviceAssertionError(LaunchError, RuntimeError):
    """A `tl.device_assert` did not hold."""


class SanitizerError(LaunchError, RuntimeError):
    """Checks of a launch found faults of its kernel.

    Args:
        message: the faults, as people read them.
        faults: what was found (`tilewright.sanitize.Fault`).
    """

    def __init__(self, message: str, faults: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class DriverError(LaunchError, RuntimeError):
    """The GPU's driver refused or failed, or there is none.

    Args:
        message: what was being done, and what the driver says.
        code: the driver's number for it; 0 where there is no driver.
        name: the driver's name for it (`"CUDA_ERROR_ILLEGAL_ADDRESS"`).
        hint: what to do.
    """

    def __init__(self, message: str, code: int = 0, name: str = "", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code, self.name = code, name


class OutOfResources(LaunchError):
    """A kernel needs more of a resource than the target has.

    Args:
        required: amount needed.
        limit: amount available.
        name: the resource ("shared memory", "threads", ...).
        detail: what in the kernel takes it, or "".
        hint: what to shrink.
    """

    def __init__(
        self,
        required: int,
        limit: int,
        name: str,
        detail: str = "",
        hint: str = "Reducing block sizes or `num_stages` may help.",
    ) -> None:
        message = f"out of resource: {name}, Required: {required}, Hardware limit: {limit}."
        super().__init__(f"{message}\n{detail}" if detail else message, hint=hint)
        self.required, self.limit, self.name, self.detail = required, limit, name, detail

    def __reduce__(self) -> tuple[object, ...]:
        return (OutOfResources, (self.required, self.limit, self.name, self.detail, self.hint))


class AutotunerError(LaunchError):
    """An autotuner was left without a configuration to try."""


class InterpreterError(LocatedError):
    """A kernel failed while it was interpreted."""
