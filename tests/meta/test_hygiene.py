"""What must not stand in the repository: paths of one machine, notes to self, leftovers of a merge, and in the package
files of text whose encoding is that of the user's machine."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.meta.sources import FOLDERS, ROOT, Source, sources

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


OPENERS = {"open", "fdopen", "NamedTemporaryFile"}  # binary where a mode says so
NO_FILES = {"os", "tarfile", "webbrowser"}  # whose `open` opens no text


def without_encoding(source: Source) -> Iterator[int]:
    """Lines that open a file of text and do not say its encoding."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        place, _, name = ast.unparse(node.func).rpartition(".")
        values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        modes = [value for value in values if re.fullmatch("[rwaxbt+]{1,3}", str(value))]
        opens = name in OPENERS and place not in NO_FILES and (modes or (name == "open" and not place))
        if name in ("read_text", "write_text") or (opens and not any("b" in mode for mode in modes)):
            yield node.lineno


@pytest.mark.parametrize("source", sources("tilewright", "packaging"), ids=lambda source: source.name)
def test_files_of_text_say_their_encoding(source):
    assert list(without_encoding(source)) == []


def test_the_rule_of_encodings_sees_what_it_must():
    wrong = (
        "open(p)",
        "p.open('w')",
        "p.read_text()",
        "p.write_text(x)",
        "open(p, 'a')",
        "tempfile.NamedTemporaryFile('w')",
    )
    right = "open(p, 'rb')", "p.open('rb')", "p.read_text(encoding='utf-8')", "os.open(p, 0)", "loop.open(0, i)"
    assert list(without_encoding(Source(None, "x.py", "\n".join(wrong)))) == list(range(1, len(wrong) + 1))
    assert list(without_encoding(Source(None, "x.py", "\n".join(right)))) == []


def test_no_folder_beside_a_program_stands_for_a_package_that_is_not_installed():
    """Python takes a folder `torch` beside the program that it runs for an empty package, and says something else."""
    beside = {path.name for path in (ROOT / "examples").rglob("*") if path.is_dir()}
    assert not beside & {"torch", "numpy", "triton", "helion", "tilewright"}
