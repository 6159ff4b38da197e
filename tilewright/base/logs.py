"""Records of what the package does, by the `logging` of Python; which of them the knob `runtime.logs` shows.

Loggers: `tilewright.compile`, `.cache`, `.launch`, `.tune`, and those of the storeys above, `tilewright.hl` and
`tilewright.torch`. Nothing is set up here unless the knob asks for it: levels and handlers are the program's.
"""

from __future__ import annotations

import logging
import sys

compiling = logging.getLogger("tilewright.compile")
caching = logging.getLogger("tilewright.cache")
launching = logging.getLogger("tilewright.launch")
tuning = logging.getLogger("tilewright.tune")

SUBJECTS = ("compile", "cache", "launch", "tune", "hl", "torch")
_SIGNS = {"+": logging.DEBUG, "-": logging.ERROR}
_FORMAT = "%(asctime)s.%(msecs)03d %(name)s: %(message)s"


def levels_of(text: str) -> dict[str, int]:
    """Level by the name of a logger: `compile` asks for INFO, `+cache` for DEBUG, `-hl` for errors only.

    Args:
        text: subjects, or `all`, separated by commas.

    Raises:
        ValueError: there is no such subject.
    """
    found = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        subject = word.lstrip("+-")
        if subject not in (*SUBJECTS, "all"):
            raise ValueError(f"names {subject!r}, which is none of all, {', '.join(SUBJECTS)}")
        name = "tilewright" if subject == "all" else f"tilewright.{subject}"
        found[name] = _SIGNS.get(word[0], logging.INFO)
    return found


class _Shown(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr as it is now, unless the program has handlers of its own, which get the records anyway."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.setStream(sys.stderr)
            super().emit(record)


_handler = _Shown()
_set: dict[str, int] = {}  # by the knob


def show(text: str) -> None:
    """Have records written to stderr, and no others that an earlier call asked for.

    Args:
        text: as for `levels_of`.
    """
    wanted, top = levels_of(text), logging.getLogger("tilewright")
    for name in _set.keys() - wanted.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in wanted.items():
        logging.getLogger(name).setLevel(level)
    _set.clear()
    _set.update(wanted)
    (top.addHandler if wanted else top.removeHandler)(_handler)
