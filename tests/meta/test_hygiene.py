"""What must not stand in the repository: paths of one machine, notes to self, leftovers of a merge."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.meta.sources import FOLDERS, ROOT

# Spelt with a class in each so that this file does not match itself.
PATTERNS = {
    "a path of one machine": re.compile(r"(?<![\w.])/(?:[r]oot|[h]ome/\w+|[w]ork|[U]sers/\w+|[t]mp/\w+)/"),
    "a note to self": re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b"),
    "a leftover of a merge": re.compile(r"^(?:<{7}|>{7}|={7})(?: |$)", re.MULTILINE),
}
TEXT = {".py", ".md", ".toml", ".txt", ".yml", ".json", ".ttir", ".mlir", ""}


def _files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.splitlines()]
    else:  # an unpacked archive
        paths = [path for folder in (*FOLDERS, "docs") for path in (ROOT / folder).rglob("*")]
    return [path for path in paths if path.is_file() and path.suffix in TEXT]


@pytest.mark.parametrize("what", PATTERNS)
def test_repository_is_free_of(what):
    found = []
    for path in _files():
        for match in PATTERNS[what].finditer(path.read_text(encoding="utf-8", errors="replace")):
            found.append(f"{path.relative_to(ROOT)}: {match.group().strip()}")
    assert not found, "\n".join(found)


def test_the_patterns_see_what_they_must():
    assert PATTERNS["a path of one machine"].search("open('/tm" + "p/abc/x')")
    assert PATTERNS["a note to self"].search("# TO" + "DO later")
    assert PATTERNS["a leftover of a merge"].search("x\n" + "<" * 7 + " main\n")
