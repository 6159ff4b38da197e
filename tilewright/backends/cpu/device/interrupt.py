"""Ctrl-C ends a grid: a handler that notes the signal, and what the launcher asks when one has come.

    Ctrl-C --> tw_on_signal: state = SIGNALLED, then the handler of the interpreter
    kernel, after a program, on any thread: state?  --> back to the launcher --> tw_poll
    tw_poll on the main thread, with the GIL: run the Python handlers; if they raise, state = STOPPED
    tw_poll elsewhere: leave if STOPPED

A handler that does not raise changes nothing: the grid goes on where it was. `tw_launch_held` is `tw_launch` for
callers that hold the GIL. A launch that was stopped returns with the handler's exception set.
"""

from __future__ import annotations

import ctypes
import functools
import signal
import sys
from collections.abc import Callable
from typing import Any

from tilewright.backends.cpu.abi import RUNNING, SIGNALLED, STOP_POLL, STOPPED
from tilewright.backends.llvm.codegen import Library, load_helper
from tilewright.backends.llvm.features import host_triple
from tilewright.backends.protocol import ByteCache
from tilewright.base import system
from tilewright.base.errors import TilewrightError
from tilewright.base.record import Record

EXPORTS = ("tw_on_signal", "tw_poll", "tw_self", "tw_launch_held", "tw_words")

# Addresses that Python fills in, by index; the stop record of `abi` comes first.
_STOP, _BEFORE, _LAUNCH, _MAIN = 0, 2, 3, 4

_IR = f"""
@tw_words = global [5 x i64] zeroinitializer, align 64

declare i64 @pthread_self()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

define internal i64 @word(i64 %index) alwaysinline {{
  %p = getelementptr i64, ptr @tw_words, i64 %index
  %w = load i64, ptr %p
  ret i64 %w
}}

define void @tw_on_signal(i32 %number) nounwind {{
  store volatile i32 {SIGNALLED}, ptr @tw_words
  %before = call i64 @word(i64 {_BEFORE})
  %handler = inttoptr i64 %before to ptr
  call void %handler(i32 %number)
  ret void
}}

define i64 @tw_self() nounwind {{
  %self = call i64 @pthread_self()
  ret i64 %self
}}

define i32 @tw_poll(ptr %stop) nounwind {{
entry:
  %state = load volatile i32, ptr %stop
  %over = icmp eq i32 %state, {STOPPED}
  br i1 %over, label %leave, label %who

who:
  %self = call i64 @pthread_self()
  %main = call i64 @word(i64 {_MAIN})
  %mine = icmp eq i64 %self, %main
  br i1 %mine, label %handle, label %stay

handle:                                   ; first the state: a signal that comes meanwhile is for the next program
  store volatile i32 {RUNNING}, ptr %stop
  %held = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %held)
  %fine = icmp eq i32 %raised, 0
  br i1 %fine, label %stay, label %end

end:
  store volatile i32 {STOPPED}, ptr %stop
  br label %leave

leave:
  ret i32 1

stay:
  ret i32 0
}}

define void @tw_launch_held(ptr %block) {{
  %address = call i64 @word(i64 {_LAUNCH})
  %launch = inttoptr i64 %address to ptr
  %thread = call ptr @PyEval_SaveThread()
  call void %launch(ptr %block)
  call void @PyEval_RestoreThread(ptr %thread)
  ret void
}}
"""


class Interrupts(Record):
    """The loaded code.

    Args:
        library: keeps it alive.
        stop: address of the stop record of launches on the main thread.
        self: address of `i64 tw_self()`, which tells the thread.
        launch: `tw_launch` on the packed block; raises what a signal handler raised.
    """

    library: Library
    stop: int
    self: int
    launch: Callable[[bytes], None]

    def watch(self) -> None:
        """Note SIGINT from now on, if the interpreter has a handler for it; call it again after `signal.signal`."""
        if not callable(signal.getsignal(signal.SIGINT)):  # ignored, or ends the process at once
            return
        get, put = _handlers()
        ours = self.library.address("tw_on_signal")
        current = get(signal.SIGINT)
        if current != ours:
            self._word(_BEFORE).value = current
            put(signal.SIGINT, ours)

    def _word(self, index: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self.stop + 8 * index)


def load_interrupts(launch: int, main: int, cache: ByteCache | None) -> Interrupts | None:
    """The code for this process, or None where the interpreter or the system has not what it needs.

    Args:
        launch: address of `tw_launch`.
        main: `threading.main_thread().ident`.
        cache: where to look for its object, and where to keep it.
    """
    if sys.implementation.name != "cpython" or not system.this().interrupts:
        return None
    try:
        library = load_helper("interrupts", interrupts_text(host_triple()), EXPORTS, cache)
    except TilewrightError:  # a system whose loader gives no symbols of the interpreter
        return None
    held: Any = ctypes.PYFUNCTYPE(None, ctypes.c_char_p)(library.address("tw_launch_held"))
    made = Interrupts(library, library.address("tw_words"), library.address("tw_self"), held)
    made._word(STOP_POLL // 8).value = library.address("tw_poll")
    made._word(_LAUNCH).value, made._word(_MAIN).value = launch, main
    return made


def interrupts_text(triple: str) -> str:
    """LLVM IR of the code."""
    return f'target triple = "{triple}"\n{_IR}'


@functools.cache
def _handlers() -> tuple[Callable[[int], int], Callable[[int, int], int]]:
    """CPython's own ways to read and set the handler of a signal, as addresses."""
    get, put = ctypes.pythonapi.PyOS_getsig, ctypes.pythonapi.PyOS_setsig
    get.restype = put.restype = ctypes.c_void_p
    get.argtypes, put.argtypes = (ctypes.c_int,), (ctypes.c_int, ctypes.c_void_p)
    return get, put
