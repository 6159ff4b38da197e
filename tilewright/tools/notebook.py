"""`python -m tilewright.tools.notebook`: writes the notebooks of docs/ anew, from the pages that they are.

A block of Python is a cell of code, what stands between is a cell of text; what a block prints is left for Jupyter to
show. The format is nbformat 4.5 (https://nbformat.readthedocs.io).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGES = ("first_steps",)
_DOCS = Path(__file__).resolve().parents[2] / "docs"
_CODE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n.*?```\n)?", re.DOTALL)


def path(page: str) -> Path:
    """The file of a page's notebook."""
    return _DOCS / f"{page}.ipynb"


def written(page: str) -> str:
    """The notebook of a page, as its file has it."""
    text = (_DOCS / f"{page}.md").read_text(encoding="utf-8")
    cells = [{"id": f"{page}-{number}", **cell} for number, cell in enumerate(_cells(text))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def _cells(text: str) -> Iterator[dict[str, Any]]:
    parts = _CODE.split(text)  # text and code in turn
    for number, part in enumerate(parts):
        source = part.strip("\n").splitlines(keepends=True)
        if not source:
            continue
        if number % 2:
            yield {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
        else:
            yield {"cell_type": "markdown", "metadata": {}, "source": source}


def main() -> None:
    """Write all of them."""
    for page in PAGES:
        path(page).write_text(written(page), encoding="utf-8")


if __name__ == "__main__":
    main()
