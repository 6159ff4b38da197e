"""Compares the list of names with an installed Helion, by reading its files: none of it is imported.

    python -m tests.helion_names.against_wheel [FOLDER of the package]

`make test-helion` runs it where the wheel is installed. It prints what the list lacks, and fails if that is anything.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from tilewright.helion_names.surface import MODULES, ROWS
from tilewright.hl import exc, settings

PUBLIC_ALL = ("helion.autotuner.config_spec", "helion._compat", "helion._utils", "helion.runtime.ref_mode")
"""Modules of which the list has what programs use; the rest is Helion's own business."""


def names(text: str) -> Iterator[str]:
    """The public names that the text of a module defines or passes on."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname for alias in node.names if alias.asname == alias.name)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def listed_in(text: str) -> set[str]:
    """`__all__`, where a module has one."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            return set(ast.literal_eval(node.value))
    return set()


def fields(text: str, name: str) -> Iterator[str]:
    """The annotated names of a class."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from (item.target.id for item in node.body if isinstance(getattr(item, "target", None), ast.Name))


def missing(folder: Path) -> Iterator[str]:
    """What Helion has and the list has not."""
    for module in MODULES:
        path = folder.joinpath(*module.split(".")[1:])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        text = file.read_text(encoding="utf-8")
        found = listed_in(text) or {name for name in names(text) if not name.startswith("_")}
        known = {name for row in ROWS if row.module == module for name in row.names}
        ignorable = {"log", "T"} | {name for name in found if name.endswith("Literal")} | {"exc", "language", "runtime"}
        if module not in PUBLIC_ALL:
            yield from (f"{module}.{name}" for name in sorted(found - known - ignorable - _PRIVATE.get(module, set())))
    text = (folder / "exc.py").read_text(encoding="utf-8")
    yield from (f"helion.exc.{name}" for name in names(text) if not name.startswith("_") and not hasattr(exc, name))
    text = (folder / "runtime" / "settings.py").read_text(encoding="utf-8")
    known = {*settings.Settings.__annotations__, *settings.WITHOUT_MEANING}
    yield from (f"the setting {name}" for name in fields(text, "_Settings") if name not in known)


_PRIVATE = {
    "helion.runtime.kernel": {"CompiledConfig"},
    "helion.runtime.settings": {"DotPrecision", "PrecompileMode", "is_pallas_interpret"},
}
"""Types of annotations, and questions that no program asks."""


def main() -> None:
    """Print what is missing."""
    spec = importlib.util.find_spec("helion") if len(sys.argv) < 2 else None
    folder = Path(sys.argv[1]) if spec is None else Path(str(spec.origin)).parent
    found = list(missing(folder))
    print("\n".join(found) or f"the list has all names of {folder}")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
