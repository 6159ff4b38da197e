"""Pages of mistakes: the code of each is run, and what it raises is printed below it."""

from __future__ import annotations

import re
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs
from tilewright.tools.modules import load_file

_FILE = "kernels.py"
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_OWN_LINE = re.compile(r"(\(tilewright/[\w/]+\.py):\d+\)")


@dataclass(frozen=True, slots=True)
class Case:
    """A mistake.

    Args:
        title: heading.
        code: the lines that make it, after those of the page's header.
        remark: what the reader should take from it, if the error does not say it all.
        debug: whether device assertions are on, as with TILEWRIGHT_DEBUG=1.
    """

    title: str
    code: str
    remark: str = ""
    debug: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page of mistakes.

    Args:
        name: file in docs/.
        header: the lines that every case starts with.
        introduction: text above the cases; `{header}` stands for the header.
        cases: the mistakes.
    """

    name: str
    header: str
    introduction: str
    cases: tuple[Case, ...]


def _stable(text: str) -> str:
    """`text` without what differs between runs and versions."""
    return _OWN_LINE.sub(r"\1)", _ADDRESS.sub("0x…", text))


def run(case: Case, header: str) -> str:
    """Run the code of a case behind `header` from a file and return the error as Python would print its last lines.

    Raises:
        RuntimeError: it raised nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _FILE
        path.write_text(f"{header}\n{textwrap.dedent(case.code).strip()}\n", encoding="utf-8")
        before, knobs.runtime.debug = knobs.runtime.debug, case.debug
        try:
            load_file(path, "kernels")
        except TilewrightError as error:
            return _stable(f"{type(error).__name__}: {error}".replace(str(path), _FILE))
        finally:
            knobs.runtime.debug = before
    raise RuntimeError(f"the case {case.title!r} raises nothing")


def markdown(page: Page) -> str:
    """The text of a page."""
    parts = [page.introduction.format(header=page.header)]
    for case in page.cases:
        parts.append(f"## {case.title}\n\n```python\n{textwrap.dedent(case.code).strip()}\n```\n")
        parts.append(f"```text\n{run(case, page.header)}\n```\n")
        if case.remark:
            parts.append(f"{case.remark}\n")
    return "\n".join(parts)
