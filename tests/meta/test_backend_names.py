"""Rooms below the back ends know none by name; one list knows all; `null` shows what a back end touches."""

from __future__ import annotations

import ast
import re
from collections import Counter

from tests.meta.sources import ROOT, sources
from tests.meta.test_layering import RANKS, imports, room
from tilewright.devices.registry import BACKENDS

FOLDERS = {"cpu": "cpu", "cuda": "nvidia", "null": "null"}
LOWER = {name for name, rank in RANKS.items() if rank < RANKS["backends"]}
# The language's questions about targets (`tl.target_info`) are the one place that others ask.
ALLOWED = {"tilewright/ops/functions/target.py": 3}


def test_lower_rooms_name_no_back_end():
    found: Counter[str] = Counter()
    for source in sources("tilewright"):
        if room(source.module) in LOWER and re.search(r"[\"'](cpu|cuda|null)[\"']", source.text):
            exported = {id(name) for node in source.tree.body if _is_export(node) for name in ast.walk(node)}
            found[source.name] += sum(
                isinstance(node, ast.Constant) and node.value in BACKENDS and id(node) not in exported
                for node in ast.walk(source.tree)
            )
    assert {name: count for name, count in found.items() if count} == ALLOWED


def _is_export(node: ast.stmt) -> bool:
    """Whether it lists the names of a module, which are users' (`tl.extra.cuda`)."""
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)


def test_a_back_end_is_its_folder_and_its_lines_in_the_list():
    """Nobody but the list imports `null`, and no other file names it."""
    mine = "tilewright/backends/null/"
    own = (mine, "tilewright/backends/llvm/types.py")  # the latter writes LLVM's null pointer
    others = [source for source in sources("tilewright") if not source.name.startswith(own)]
    importers = {s.name for s in others if any(n.startswith("tilewright.backends.null") for n, _, _ in imports(s))}
    naming = {s.name for s in others if re.search(r"[\"']null[\"']", s.text)}
    assert importers == naming == {"tilewright/devices/registry.py"}


def test_every_back_end_has_the_files_that_the_protocol_names():
    for name, entry in BACKENDS.items():
        folder = ROOT / "tilewright" / "backends" / FOLDERS[name]
        assert (folder / "options.py").is_file() and (folder / "backend.py").is_file()
        assert (folder / "device" / "active.py").is_file() == (entry.device is not None)
