"""Files that are for others to read say what the package says: the recipe of conda, the citation, workflows."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.meta.sources import ROOT
from tilewright.base.version import __version__

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_recipe_asks_for_what_the_package_asks_for():
    run = _read("packaging/conda/meta.yaml").partition("  run:\n")[2].partition("\ntest:")[0]
    asked = {line.strip(" -").replace(" ", "") for line in run.splitlines() if line.strip()}
    assert asked == {f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]}


def test_versions_and_licences_agree():
    recipe, citation = _read("packaging/conda/meta.yaml"), _read("CITATION.cff")
    assert f'version = "{__version__}"' in recipe and f"\nversion: {__version__}\n" in citation
    for text in (recipe, citation):
        assert f"license: {PROJECT['license']}\n" in text
    assert f"## {__version__}" in _read("CHANGELOG.md")


def test_what_tests_install_is_there_for_every_system():
    """NVIDIA has no wheels for macOS."""
    extras = PROJECT["optional-dependencies"]
    named = [*PROJECT["dependencies"], *(line for name in ("torch", "test", "testing", "dev") for line in extras[name])]
    assert not [line for line in named if line.startswith("nvidia") and not line.endswith("; sys_platform != 'darwin'")]


@pytest.mark.skipif(not WORKFLOWS, reason="an unpacked archive has no workflows")
def test_actions_are_pinned_by_commit():
    uses = [line.strip(" -") for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    assert len(uses) > 3 and not [line for line in uses if not PINNED.match(line)]


@pytest.mark.skipif(not WORKFLOWS, reason="an unpacked archive has no workflows")
def test_workflows_run_targets_that_there_are():
    targets = set(re.findall(r"^([a-z0-9-]+):.*##", _read("Makefile"), re.MULTILINE))
    wanted = {name for path in WORKFLOWS for name in re.findall(r"run: make ([a-z0-9-]+)", path.read_text())}
    assert {"tour", "test", "lint", "release-check"} <= wanted <= targets
