"""Compiling ahead of need: a mode in which `warmup` hands compilations to an executor and does not wait.

::

    with tilewright.AsyncCompileMode(executor):
        kernel.warmup(x, n, BLOCK=64, grid=grid)    -> FutureKernel; the executor compiles
        kernel[grid](x, n, BLOCK=64)                -> waits for this one only, or compiles it if nobody has begun

Names are Triton's. Threads compile in this process. Any other executor (processes, a cluster) is sent the pickled
request and gives the machine code back; a kernel that cannot be sent is compiled here when it is wanted.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

from tilewright.base.errors import LaunchError
from tilewright.base.grids import Grid
from tilewright.compile.build import Image, image_of, image_of_pickled, is_kept, load_compiler
from tilewright.compile.forks import ForkExecutor
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.request import Request
from tilewright.compile.shared import Job

Compile = Callable[[Callable[[], Image] | None], CompiledKernel | None]


class FutureKernel:
    """A kernel that is being compiled. Its attributes are those of the compiled kernel, which they wait for.

    Args:
        job: the compilation.
    """

    def __init__(self, job: Job[CompiledKernel | None]) -> None:
        self._job = job

    def result(self) -> CompiledKernel | None:
        """The compiled kernel; None if a hook asked that it be not compiled.

        Raises:
            CompilationError: the kernel is wrong; any other error of a compilation too.
        """
        return self._job.result()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.result(), name)

    def __getitem__(self, grid: Grid) -> Any:
        kernel = self.result()
        assert kernel is not None, "a hook asked that it be not compiled"
        return kernel[grid]


class AsyncCompileMode:
    """Inside, `kernel.warmup(...)` returns a `FutureKernel` at once; leaving it, but by an interrupt, waits for all.

    Args:
        executor: any `concurrent.futures.Executor`.
        ignore_errors: leave without raising what went wrong; a launch of a kernel that did not compile still does.

    Raises:
        LaunchError: on entry, if the mode is on already.
    """

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        self.executor, self.ignore_errors = executor, ignore_errors
        self._jobs: list[Job[CompiledKernel | None]] = []
        self._token: Token[AsyncCompileMode | None] | None = None

    def submit(
        self, offer: Callable[[Callable[[], CompiledKernel | None]], Job[CompiledKernel | None]],
        request: Request, compile: Compile,
    ) -> FutureKernel:  # fmt: skip
        """Have the executor compile what is asked for.

        Args:
            offer: makes a job of a function, or gives the one that is there.
            request: what is asked for.
            compile: compiles here, or makes a kernel of an image that was made elsewhere.
        """
        images: list[Future[Image]] = []

        def make() -> CompiledKernel | None:
            return compile(images[0].result if images else None)

        job = offer(make)
        if isinstance(self.executor, ThreadPoolExecutor):
            self.executor.submit(job.result)
        elif job.is_for(make) and not is_kept(request):
            image = self._image(request)
            images += [] if image is None else [image]
        self._jobs.append(job)
        return FutureKernel(job)

    def _image(self, request: Request) -> Future[Image] | None:
        """What another process compiles; None if the request cannot be sent there."""
        if isinstance(self.executor, ForkExecutor):
            load_compiler(request.target)
            return self.executor.submit(image_of, request)
        try:
            pickled = pickle.dumps(request)
        except Exception:  # a kernel that no module holds, or whatever the pickling of some constant raises
            return None
        return self.executor.submit(image_of_pickled, pickled)

    def __enter__(self) -> AsyncCompileMode:
        if active() is not None:
            raise LaunchError("AsyncCompileMode cannot be nested", hint="leave the outer mode first")
        self._token = active_mode.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        active_mode.reset(self._token)
        failed: list[Exception] = []
        interrupted = kind is not None and not issubclass(kind, Exception)
        for job in self._jobs:
            try:
                job.withdraw() if interrupted else job.result()
            except Exception as problem:
                failed.append(problem)
        self._jobs.clear()
        if failed and error is None and not self.ignore_errors:
            raise failed[0]


active_mode: ContextVar[AsyncCompileMode | None] = ContextVar("tilewright_async_compile_mode", default=None)


def active() -> AsyncCompileMode | None:
    """The mode that is on here, if one is."""
    return active_mode.get()
