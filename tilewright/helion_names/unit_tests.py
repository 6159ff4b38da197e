"""What unit tests written for Helion use: conditions under which they are skipped, and their base classes.

Assertions on the text of generated code pass, as that text is Tilewright's own.
"""

from __future__ import annotations

import contextlib
import functools
import unittest
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import torch

from tilewright.helion_names import compat
from tilewright.hl import exc
from tilewright.hl.runtime.bound import BoundKernel
from tilewright.hl.settings import RefMode, Settings
from tilewright.hl.testing import PROJECT_ROOT

T = TypeVar("T")
Decorator = Callable[[T], T]
PRETUNED_KERNELS_DIR = PROJECT_ROOT / "pretuned_kernels"
BACK_END = "triton"  # of Helion's, the one whose kernels these are


# --- when a test is skipped ----------------------------------------------------------------------------


def skipIfFn(cond_fn: Callable[[], bool], reason: str) -> Decorator[Any]:
    """Skip a test, or a class of tests, where a condition holds when it runs."""

    def decorate(item: Any) -> Any:
        if isinstance(item, type):
            return unittest.skipIf(cond_fn(), reason)(item)

        @functools.wraps(item)
        def test(*args: Any, **kwargs: Any) -> Any:
            if cond_fn():
                raise unittest.SkipTest(reason)
            return item(*args, **kwargs)

        return test

    return decorate


def xfailIfFn(cond_fn: Callable[[], bool], reason: str) -> Decorator[Any]:
    """Expect a test to fail where a condition holds."""
    return lambda item: unittest.expectedFailure(item) if cond_fn() else item


def _never(reason: str = "") -> Decorator[Any]:
    """The condition is never met here."""
    return lambda item: item


def _always(reason: str = "") -> Decorator[Any]:
    """The condition is always met here."""
    return unittest.skip(reason)


def is_cuda() -> bool:
    """Whether there is a GPU."""
    return bool(torch.cuda.is_available())


def is_mtia() -> bool:
    """No."""
    return False


def _is_reference() -> bool:
    """Whether kernels run as plain Python."""
    return bool(Settings().ref_mode is not RefMode.OFF)


skipIfCute = skipIfMTIA = skipIfMetal = skipIfNotTriton = skipIfPallas = skipIfPallasInterpret = _never
skipIfPallasTpu = skipIfRocm = skipIfTileIR = skipIfXPU = skipUnlessBlockPtr = skipUnlessTf32Supported = _never
xfailIfCute = xfailIfPallas = xfailIfPallasInterpret = xfailIfPallasTpu = _never
skipUnlessAMDCDNA = skipUnlessCuteAvailable = skipUnlessHostTensorDescriptor = skipUnlessMTIA = _always
skipUnlessMultiXCD = skipUnlessPallas = skipUnlessTileIR = _always
skipUnlessTensorDescriptor = functools.partial(skipIfFn, lambda: not is_cuda())
skipIfRefEager = functools.partial(skipIfFn, _is_reference)
skipIfNormalMode = functools.partial(skipIfFn, lambda: not _is_reference())


def skipUnlessChunkLowering(item: T) -> T:
    """The test runs."""
    return item


def skipIfNotCUDA() -> Decorator[Any]:
    """Skip where there is no GPU."""
    return skipIfFn(lambda: not is_cuda(), "there is no GPU")


def skipIfA10G(reason: str) -> Decorator[Any]:
    """Skip on this GPU."""
    return skipIfFn(lambda: "A10G" in get_nvidia_gpu_model(), reason)


def skipIfLowVRAM(reason: str = "too little memory", *, required_bytes: int | None = None) -> Decorator[Any]:
    """Skip where the GPU has less free memory (16 GiB if nothing is said)."""
    needed = required_bytes or 16 << 30
    return skipIfFn(lambda: is_cuda() and torch.cuda.mem_get_info()[0] < needed, reason)


def skipIfCudaCapabilityLessThan(min_capability: tuple[int, int], *, reason: str | None = None) -> Decorator[Any]:
    """Skip on older GPUs; other devices run the test."""
    wanted = reason or f"the GPU is older than {min_capability}"
    return skipIfFn(lambda: is_cuda() and torch.cuda.get_device_capability() < min_capability, wanted)


def skipIfSharedMemoryLessThan(required_memory_for_config: int, *, reason: str | None = None) -> Decorator[Any]:
    """Skip on GPUs whose blocks have less shared memory, in bytes."""

    def is_small() -> bool:
        properties = torch.cuda.get_device_properties() if is_cuda() else None
        return properties is not None and properties.shared_memory_per_block_optin < required_memory_for_config

    return skipIfFn(is_small, reason or f"blocks have less than {required_memory_for_config} bytes of shared memory")


def skipIfPyTorchBaseVerLessThan(min_version: str) -> Decorator[Any]:
    """Skip with an older torch."""
    return skipIfFn(lambda: not compat.requires_torch_version(min_version), f"torch is older than {min_version}")


def matchesBackends(backends: Sequence[str]) -> bool:
    """Whether "triton" is among them."""
    return BACK_END in backends


def onlyBackends(backends: Sequence[str]) -> Decorator[Any]:
    """Skip unless "triton" is among them."""
    return unittest.skipUnless(matchesBackends(backends), f"for {', '.join(backends)}")


skipUnlessBackends = onlyBackends


# --- around a test -------------------------------------------------------------------------------------


class TestCase(unittest.TestCase):
    """A test; what it says of the text of generated code holds."""

    maxDiff = 16384

    def assertExpectedJournal(self, value: str) -> None:
        """Nothing: it would compare generated code."""

    def assertEqualCode(self, first: str, second: str, msg: str | None = None) -> None:
        """Nothing: it would compare generated code."""

    def assertNotEqualCode(self, first: str, second: str, msg: str | None = None) -> None:
        """Nothing: it would compare generated code."""

    def assertTrueIfInNormalMode(self, condition: bool, msg: str | None = None) -> None:
        """The condition holds, unless kernels run as plain Python."""
        if not _is_reference():
            self.assertTrue(condition, msg)


class RefEagerTestBase:
    """A base beside `TestCase`."""


class RefEagerTestDisabled:
    """A base beside `TestCase`: its tests are skipped where kernels run as plain Python."""

    def setUp(self) -> None:
        """Skip the test, or go on."""
        super().setUp()  # type: ignore[misc]
        if _is_reference():
            raise unittest.SkipTest("kernels run as plain Python")


@contextlib.contextmanager
def track_run_ref_calls() -> Iterator[list[int]]:
    """Count runs of kernels as plain Python, in a list of one number."""
    count, run = [0], BoundKernel.run_ref

    def counted(self: BoundKernel, *args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return run(self, *args, **kwargs)

    with mock.patch.object(BoundKernel, "run_ref", counted):
        yield count


@contextlib.contextmanager
def assert_helion_ref_mode(ref_mode: RefMode = RefMode.OFF) -> Iterator[None]:
    """Raise `AssertionError` unless kernels ran as plain Python, or for `RefMode.OFF` if any did."""
    with track_run_ref_calls() as count:
        yield
    if (count[0] > 0) != (ref_mode is not RefMode.OFF):
        raise AssertionError(f"{count[0]} runs as plain Python, and the mode is {ref_mode}")


assert_helion_compilation = functools.partial(assert_helion_ref_mode, ref_mode=RefMode.OFF)
assert_ref_eager_mode = functools.partial(assert_helion_ref_mode, ref_mode=RefMode.EAGER)


@contextlib.contextmanager
def float32_matmul_precision(precision: str) -> Iterator[None]:
    """torch's precision of products of float32, for a while."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def get_test_float32_matmul_precision() -> str:
    """That with which references are computed: as on a GPU, or exactly."""
    return "high" if is_cuda() else "highest"


def get_test_dot_precision() -> str:
    """That with which kernels multiply: "tf32" on a GPU, else "ieee"."""
    return "tf32" if is_cuda() else "ieee"


def get_nvidia_gpu_model() -> str:
    """The name of the GPU; "" where there is none."""
    return torch.cuda.get_device_name() if is_cuda() else ""


def sync_object(*args: Any, **kwargs: Any) -> Any:
    """Refused: it is of tests with several GPUs."""
    raise exc.BackendUnsupported("helion._testing.sync_object", hint="kernels see the memory of one device")


def default_cute_mma_support(**kwargs: Any) -> SimpleNamespace:
    """What is passed."""
    return SimpleNamespace(**kwargs)


@contextlib.contextmanager
def patch_cute_mma_support(support: Any = None) -> Iterator[Any]:
    """Nothing is patched."""
    yield support
