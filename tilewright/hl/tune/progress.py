"""How a search is doing: a line that changes, on a terminal; elsewhere a line a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.live import Live

_EVERY = 1.0  # seconds between two lines


class Progress:
    """Shows how a search is doing on standard error.

    Args:
        name: of the kernel.
        shown: whether anything is.
        clock: gives seconds.

    Attributes:
        tried: configurations that have a time or a failure.
        out: those of them that failed.
        best: milliseconds of the fastest; None before the first.
        default: milliseconds of the default configuration.
        deadline: by the clock; infinity for none.
        phase: what is being done.
    """

    def __init__(self, name: str, shown: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self._shown, self._clock = name, shown, clock
        self.tried = self.out = 0
        self.best: float | None = None
        self.default: float | None = None
        self.deadline, self.phase = float("inf"), "compiling"
        self.began = self._last = clock()
        self._live: Live | None = None

    def line(self) -> str:
        """Best so far, configurations a second, time left."""
        now = self._clock()
        rate = self.tried / max(now - self.began, 1e-3)
        parts = [f"{self.name}: {self.phase}", f"{self.tried} tried, {self.out} out, {rate:.1f}/s"]
        if self.best is not None:
            gain = f" (default {self.default:.4g} ms)" if self.default else ""
            parts.append(f"best {self.best:.4g} ms{gain}")
        if self.deadline != float("inf"):
            parts.append(f"{max(0.0, self.deadline - now):.0f} s left")
        return ", ".join(parts)

    def tick(self) -> None:
        """Show it again, if it is time."""
        if not self._shown:
            return
        if sys.stderr.isatty():
            self._show()
        elif self._clock() - self._last >= _EVERY:
            self._last = self._clock()
            print(f"[hl] {self.line()}", file=sys.stderr)

    def _show(self) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True, refresh_per_second=8)
            self._live.start()
        self._live.update(self.line())

    def close(self) -> None:
        """Take the line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
