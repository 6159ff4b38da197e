"""The distribution `tilewright-triton`: an environment in which `import triton` is Tilewright without a switch."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.meta.sources import ROOT

FOLDER = ROOT / "packaging" / "tilewright-triton"
FILES = ("tilewright_triton.pth", "tilewright_triton.py")
SAY = """
import importlib.metadata, sys
assert "tilewright" not in sys.modules  # a start of Python loads nothing
version = importlib.metadata.version("triton")
import triton
print(version == triton.__version__, triton.__name__, getattr(triton, "__tilewright__", False))
"""


@pytest.fixture
def environment(tmp_path):
    """An environment that sees this one's packages and Tilewright, and has the files of the distribution."""
    venv.create(tmp_path / "env", with_pip=False)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    seen = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "seen.pth").write_text("".join(f"{path}\n" for path in seen))
    for name in FILES:
        (packages / name).write_text((FOLDER / name).read_text())
    return tmp_path / "env" / "bin" / "python"


def run(python: Path, program: str, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TILEWRIGHT_AS_TRITON")}
    done = subprocess.run(
        [str(python), "-c", program], env={**clean, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_triton_is_found_with_its_version(environment):
    if importlib.util.find_spec("triton") is not None:
        pytest.skip("a real Triton is installed, which goes first")
    assert run(environment, SAY) == "True triton True"


def test_a_real_triton_goes_first_unless_the_environment_says_to_pose(environment):
    (packages,) = environment.parents[1].glob("lib/python*/site-packages")
    (packages / "triton.py").write_text("__version__ = '3.5.0'\n")
    say = "import triton; print(triton.__version__, getattr(triton, '__tilewright__', False))"
    assert run(environment, say) == "3.5.0 False"
    assert run(environment, say, TILEWRIGHT_AS_TRITON="1") == "3.9.0 True"
    loaded = "import triton, tilewright\ntry: tilewright.as_triton()\nexcept ImportError as error: print(error)"
    assert "imported already" in run(environment, loaded)


def test_the_wheel_holds_these_files_and_no_more(tmp_path):
    described = tomllib.loads((FOLDER / "pyproject.toml").read_text())
    assert tuple(sorted(described["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"])) == FILES
    pytest.importorskip("hatchling", reason="the back end that builds wheels")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", build], cwd=FOLDER, capture_output=True, text=True, check=True)
    names = zipfile.ZipFile(tmp_path / done.stdout.split()[-1]).namelist()
    assert sorted(name for name in names if ".dist-info/" not in name) == list(FILES)
