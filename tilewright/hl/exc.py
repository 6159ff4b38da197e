"""The errors of `hl`, under the names that users of Helion know.

None of those that a trace raises is a `TypeError`: PyTorch's operators take a `TypeError` for "try the other operand".
Every class is a `tilewright.errors.TilewrightError`. Errors found while a kernel is traced carry the place in the
user's source: the interpreter of statements stamps it with :func:`located`, so the code that raises need not know it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from tilewright import errors


class Error(errors.CompilationError, RuntimeError):
    """Root of the errors of `hl`.

    Args:
        message: what is wrong, with types and shapes.
        location: where; stamped later when the raiser does not know it.
        hint: what to write instead.
    """

    def __init__(
        self, message: str | None = None, location: errors.Location | None = None, *, hint: str | None = None
    ) -> None:
        super().__init__(message, location, hint=hint)
        self.line = 0  # of the user's file, where code is written rather than traced

    def says_all(self, cause: BaseException) -> bool:
        """Every error of `hl` quotes what PyTorch or the language said."""
        return True


Base = BaseError = Error


class InternalError(Error, errors.InternalError):
    """A fault of `hl` itself."""


class UnsupportedOperation(Error, NotImplementedError):
    """A PyTorch operation that has no meaning on tiles, or that `hl` does not know."""


class BackendUnsupported(Error, NotImplementedError):
    """A name of Helion that no back end of Tilewright offers."""


# --- use of the language -----------------------------------------------------------------------


class InvalidAPIUsage(Error):
    """A function of the language was called in a way it does not allow."""


class NotInsideKernel(InvalidAPIUsage):
    """A function of the language was called outside a kernel."""


class DeviceAPIOnHost(InvalidAPIUsage):
    """A function of tiles was called outside the loops."""


class HostAPIOnDevice(InvalidAPIUsage):
    """A function of the host was called inside a loop."""


class InvalidSignature(InvalidAPIUsage, TypeError):
    """A kernel has parameters that can only be given by name, or any number of them."""


class HostValueNotAvailable(Error):
    """Host code needs a value of a tensor while the kernel is compiled."""


class UndefinedVariable(Error, NameError):
    """A name is not defined, or only in one branch."""


class UndefinedAttribute(Error, AttributeError):
    """A module or a value has no such attribute."""


class StatementNotSupported(Error):
    """A statement of Python that kernels do not have."""


class UnsupportedPythonType(Error, TypeError):
    """A value of a type that kernels do not take."""


class NoTensorArgs(Error, TypeError):
    """No argument is a tensor: there is no device to run on."""


class NoDeviceLoopsInKernel(Error):
    """The function has no `hl.tile` or `hl.grid` loop."""


class EmptyDeviceLoopAfterDCE(Error):
    """Nothing in a loop has an effect."""


class TracerNeeded(Error):
    """A kernel is called where PyTorch traces, and nothing tells PyTorch what it is."""


class NestedKernelCallsNotSupported(Error):
    """A kernel was called inside a kernel."""


class NotAllowedInHelperFunction(Error):
    """A function called by a kernel contains what belongs into the kernel."""


class ClosuresNotSupported(Error):
    """A kernel is defined inside a function whose variables it uses."""


class SourceNotAvailable(Error):
    """The text of the function cannot be read."""


# --- loops and tiles ---------------------------------------------------------------------------


class LoopFunctionNotInFor(InvalidAPIUsage):
    """`hl.tile` and its kin must be what a `for` iterates."""


class DeviceLoopElseBlock(StatementNotSupported):
    """A loop over tiles has an `else`."""


class TopLevelStatementBetweenLoops(Error):
    """Host code stands where only a loop may."""


class NestedGridLoop(Error):
    """A top-level loop over tiles stands under a host `if` or loop that is not constant."""


class InvalidDeviceForLoop(Error):
    """A `for` inside a loop over tiles iterates something that is not known while tracing."""


class IncorrectTileUsage(Error):
    """A tile is used as something it is not."""


class InvalidJaggedTileUsage(IncorrectTileUsage):
    """`hl.jagged_tile` got something else than the ends of the lanes of an enclosing tile."""


class TileOfTile(IncorrectTileUsage):
    """A tile is given as the bound of a loop."""


class InvalidTileRange(Error, ValueError):
    """A loop begins behind its end."""


class FailedToUnpackTile(IncorrectTileUsage):
    """Several loop variables, one range."""


class NestedDeviceLoopsConflict(IncorrectTileUsage):
    """A loop has the registered block size of a loop around it."""


class BarrierOnlyAllowedAtTopLevel(Error):
    """`hl.barrier()` inside a loop."""


# --- statements inside loops -------------------------------------------------------------------


class NotAllowedOnDevice(StatementNotSupported):
    """A statement that only the host can run."""


class HostTensorDirectUsage(Error):
    """A whole host tensor is used in a loop where a subscript of it was meant."""


class CannotModifyHostVariableOnDevice(Error):
    """A loop rebinds a variable of the host."""


class CannotReadDeviceVariableOnHost(Error, NameError):
    """Host code reads a variable that exists only inside a loop."""


class DeviceTensorSubscriptAssignmentNotAllowed(Error):
    """A part of a tile is assigned."""


class ChangedThroughView(Error):
    """A tensor is read whose memory was changed in place through another one: a view of it, or what it is a view of."""


class AtomicOnDeviceTensor(Error):
    """An atomic update of a tile."""


class BreakpointInDeviceLoopRequiresInterpret(Error):
    """`breakpoint()` in compiled code."""


class StackTensorOnHost(DeviceAPIOnHost):
    """`hl.stacktensor_like` outside the loops."""


StackTensorcOnHost = StackTensorOnHost  # as Helion spells it


class StackTensorDevPtrDtype(Error):
    """The addresses of a stack tensor are not 64-bit integers."""


class StackTensorDevPtrOnHost(Error):
    """The addresses of a stack tensor are a whole tensor of the host."""


class StackTensorExampleOnDevice(Error):
    """What a stack tensor is like is a tile."""


class SizeUsedAsNumber(Error):
    """A size that is not known while tracing is needed as a Python number."""


class DataDependentOutputShapeNotSupported(UnsupportedOperation):
    """The shape of the result would depend on data."""


class ConstantNeeded(Error):
    """A floating-point argument cannot stay one: it becomes a constant of the compiled code."""


class LeakedSample(Error):
    """The kernel depends on a size or a value that the trace invented."""


# --- shapes and types --------------------------------------------------------------------------


class ShapeMismatch(Error, ValueError):
    """Shapes do not fit together."""


class DotBatchDimensionMismatch(ShapeMismatch):
    """The batches of a product differ."""


class RankMismatch(ShapeMismatch):
    """More or fewer subscripts than dimensions."""


class InvalidIndexingType(Error):
    """A subscript of a kind that tensors do not take."""


class InputTensorNumelExceedsIndexType(Error, OverflowError):
    """Offsets of a tensor pass the type that the settings give indices."""


class UnsupportedSplitOperation(UnsupportedOperation):
    """`hl.split` of a tile whose last dimension is not 2."""


class InvalidReductionDim(Error, ValueError):
    """A dimension that the tile does not have."""


class ControlFlowTensorMismatch(Error):
    """A variable has one type, rank or shape before a loop or in one branch, and another after it or in the other."""


class CantCombineTypesInControlFlow(ControlFlowTensorMismatch):
    """A variable is a tile or a number in one branch, and something else in the other."""


class TorchOpTracingError(Error):
    """PyTorch refused an operation; its message with the names of the axes."""


# --- constants, configuration, running -----------------------------------------------------------


class SpecializeOnDevice(HostAPIOnDevice):
    """`hl.specialize` inside a loop."""


class SpecializeArgType(InvalidAPIUsage):
    """`hl.specialize` of something that is not a size."""


class RegisterTunableArgTypes(InvalidAPIUsage):
    """`hl.register_tunable` without a name and a fragment."""


class TunableTypeNotSupported(InvalidAPIUsage):
    """A choice of the program whose values are no integers."""


class TunableNameConflict(InvalidAPIUsage):
    """A choice of the program with the name of a key that every configuration has."""


class AutotuneError(Error):
    """Tuning cannot go on."""


class NoConfigFound(AutotuneError):
    """No configuration of a kernel works."""


class InvalidConfig(Error, ValueError):
    """A configuration that does not fit the kernel."""


class WrongDeviceError(Error, errors.DeviceError):
    """A tensor is on another device than the others, or on one that kernels cannot reach."""


class TritonError(Error):
    """The generated code does not compile; a fault of `hl` or a limit of the device."""


# --- gradients ---------------------------------------------------------------------------------


class NotDifferentiable(Error, NotImplementedError):
    """A gradient is wanted of a kernel in which something has none, or none that hl can derive."""


AutodiffNotSupported = NotDifferentiable
"""Helion's name."""


class HistoryNeeded(NotDifferentiable):
    """The gradient of a loop needs what a variable held in every pass, which cannot be kept."""

    loop: Any = None  # its node


class DependsOnMaximum(NotDifferentiable):
    """A result that depends on a running maximum otherwise than by a shift that cancels."""


class DoubleBackward(NotDifferentiable):
    """The gradient of a gradient of a kernel."""


class BaseWarning(Warning):
    """Root of the warnings: Helion's, none of which is given here, and our own."""


class OverwrittenStore(BaseWarning):
    """Several programs store to the same elements, and what one of them stored remains."""


# What programs may name, to catch it or to silence it: nothing raises or gives these (docs/hl_helion.md says why).
NEVER_RAISED = frozenset(
    """
    AutodiffKernelNotCalled AutotuningDisallowedInEnvironment BackendImplementationMissing
    BarrierRequiresPersistent CacheAssertionError CantReadOnDevice ClosureMutation ConfigSpecFragmentWithSymInt
    CuteBackendUnavailable DecoratorAfterHelionKernelDecorator DuplicateStoreIndicesError ErrorCompilingKernel
    FailedToUnpackTupleAssign GlobalMutation GraphModuleUnsupportedOps IncompatibleInterpretModes
    InconsistantConfigsAcrossRanks IndexOffsetOutOfRangeForInt32 InductorLoweringError InvalidAssignment
    AssignmentMultipleTargets InvalidSequenceSubscription LoopDependencyError MissingEnableTile MultipleReductionDims
    NamingConflict NonTensorSubscriptAssign NotEnoughConfigs OverpackedTile ReductionDimInvalidForShape
    ReductionOnNonTile RefEagerModeCodePrintError RequiresTensorInAssignment ShapeSpecializingAllocation
    ShapeSpecializingCall StarredArgsNotSupportedOnDevice TracedArgNotSupported TritonUnrecoverableRuntimeError
    TypeInferenceError
    """.split()  # noqa: SIM905
)
NEVER_GIVEN = frozenset(
    """
    BlockPtrIndexingUnavailable BlockSizeIgnoredInInterpretMode CrossLoopSchedulingError CrossRootDeviceValue
    InvalidSliceStep NoAOTHeuristicWarning PdlPlacement PdlStateWithoutWait ProcessGroupNameNotFound
    TensorOperationInWrapper TensorOperationsInHostCall TensorSliceBound TiledKMatmulAccumulationWarning
    UnsupportedIndexRemapping UnsupportedSplitConfiguration WrongDevice
    """.split()  # noqa: SIM905
)


def __getattr__(name: str) -> type[Exception]:
    """A class for a name that nothing raises, so that programs can name it."""
    if name not in NEVER_RAISED and name not in NEVER_GIVEN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = Error if name in NEVER_RAISED else BaseWarning
    made: type[Exception] = globals().setdefault(name, type(name, (base,), {"__doc__": "Never raised here."}))
    return made


def located(error: Error, location: errors.Location) -> Error:
    """`error` with a place, unless it has one."""
    if error.location is None:
        error.location = location
    return error


def place_in(traceback: TracebackType | None, file: str) -> tuple[int, int, int | None] | None:
    """(line, column, end column) of the innermost frame of `traceback` that executes text of `file`."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == file:
            positions = list(code.co_positions())[traceback.tb_lasti // 2]
            line, end_line, column, end_column = positions
            if line is not None:
                found = line, column or 0, end_column if end_line == line else None
        traceback = traceback.tb_next
    return found
