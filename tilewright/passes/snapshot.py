"""A stage's text as the source that machine code names: the knob `compilation.use_ir_loc`.

%1 = tt.load %0 : ... loc("kernel.py":7:4)     on line 12 becomes     %1 = tt.load %0 : ... loc("k.ttir":12:4)
"""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.base.disk_cache import make_folder
from tilewright.base.knobs import CompilationKnobs, knobs

LOCATION = re.compile(r' loc\((?:[^()"]|"[^"]*"|\((?:[^()"]|"[^"]*"|\((?:[^()"]|"[^"]*")*\))*\))*\)')


def is_source(extension: str, settings: CompilationKnobs) -> bool:
    """Whether the text of this stage is what lines are to be of."""
    return settings.use_ir_loc is not None and settings.use_ir_loc.replace("ttgir", "tgir") == extension


def write_source(text: str, file_name: str, settings: CompilationKnobs) -> str:
    """Write the text of a stage without its locations, beside the disk cache or where stages are dumped.

    Args:
        text: tile IR with locations.
        file_name: below that folder.
        settings: where stages are dumped.

    Returns:
        The text with the lines of the file as its locations.
    """
    path = (settings.dump_dir or knobs.cache.dir / "managed") / file_name
    make_folder(path.parent)
    path = path.with_name(f"source_{path.name}") if settings.dump_dir else path
    path.write_text(LOCATION.sub("", text), encoding="utf-8")
    return at_lines_of(path, text)


def at_lines_of(path: Path, text: str) -> str:
    """The text with every location replaced by its line, and the first column of that, in a file."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        column = len(line) - len(line.lstrip())
        place = f' loc("{path}":{number}:{column})'
        rows.append(LOCATION.sub(lambda _, place=place: place, line))  # type: ignore[misc]
    return "\n".join(rows) + "\n"
