"""What mypy and pyright say of the two files of this folder: the lines of their errors, by file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"
Errors = dict[Path, dict[int, str]]


def expected() -> set[int]:
    """The lines of the wrong file that are errors."""
    return {at for at, line in enumerate(WRONG.read_text().splitlines(), 1) if line.endswith("# wrong")}


def by_mypy(options: Sequence[str] = ()) -> Errors:
    """The errors that mypy finds, as for a user who checks bodies of functions without annotations too."""
    lax = ("--allow-untyped-defs", "--allow-incomplete-defs", "--check-untyped-defs")
    command = [sys.executable, "-m", "mypy", *lax, *options, str(RIGHT), str(WRONG)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    found: Errors = {RIGHT: {}, WRONG: {}}
    for name, line, text in re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE):
        found.setdefault((ROOT / name).resolve(), {})[int(line)] = text
    return found


def by_pyright(program: str) -> Errors:
    """The errors that pyright finds in its basic mode."""
    command = [program, "--outputjson", "--pythonpath", sys.executable, str(RIGHT), str(WRONG)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    found: Errors = {RIGHT: {}, WRONG: {}}
    for row in json.loads(done.stdout)["generalDiagnostics"]:
        if row["severity"] == "error":
            found.setdefault(Path(row["file"]).resolve(), {})[row["range"]["start"]["line"] + 1] = row["message"]
    return found


def differences(found: Errors) -> list[str]:
    """What a checker says that it should not, and does not say that it should; empty when all is well."""
    made = [f"{path.name}:{at}: {text}" for path, rows in found.items() if path != WRONG for at, text in rows.items()]
    wrong = found[WRONG]
    made += [f"{WRONG.name}:{at}: {wrong[at]}" for at in sorted(wrong.keys() - expected())]
    return made + [f"{WRONG.name}:{at}: no error found" for at in sorted(expected() - wrong.keys())]


if __name__ == "__main__":
    rows = differences(by_pyright(sys.argv[1]))
    print("\n".join(rows) or f"pyright: {RIGHT.name} has no error, all {len(expected())} of {WRONG.name} were found")
    sys.exit(bool(rows))
