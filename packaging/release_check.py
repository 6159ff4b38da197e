"""What must hold of a release, looked at: `python packaging/release_check.py [FOLDER]`, or `make release-check`.

Source and wheel are built twice, in fresh folders, with the time of the last commit as SOURCE_DATE_EPOCH, and must be
equal byte for byte. Their metadata are read by twine. The wheel is installed into a fresh environment of each Python
that is on the PATH, is named (PYTHON312=...) or was made by `make python`; there a kernel runs without torch, the
licences of all that was installed are compared with a list, and the sizes are counted; then the tour runs, with torch.
It ends with a table and status 1 if something does not hold.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MOST_WHEEL_BYTES = 4_000_000
# Of everything that a user gets. It is to become 200 MB: docs/platforms.md says what stands in the way.
MOST_INSTALLED_BYTES = 270_000_000
# Parts of what packages say of their licence, any of which does: all let others use, change and pass on.
LICENCES = ("apache", "bsd", "mit", "isc", "psf", "python software foundation", "mpl", "mozilla")
NOT_SHIPPED = (".git/", "__pycache__/", ".pyc", ".venv")

SMOKE = """
import numpy as np, sys
import tilewright
import tilewright.language as tl
from importlib.resources import files

assert "site-packages" in tilewright.__file__, tilewright.__file__
assert (files("tilewright") / "py.typed").is_file()

def softmax(out, x, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * columns + i, e / tl.sum(e, axis=0), mask=i < columns)

x = np.random.default_rng(0).standard_normal((64, 75), dtype=np.float32)
out = np.empty_like(x)
tilewright.jit(softmax)[(64,)](out, x, 75, BLOCK=128)
e = np.exp(x - x.max(axis=1, keepdims=True))
assert np.allclose(out, e / e.sum(axis=1, keepdims=True), rtol=1e-5)
assert "torch" not in sys.modules
"""

INSTALLED = """
import importlib.metadata as metadata, json
found = {}
for package in metadata.distributions():
    data = package.metadata
    name = data["Name"]
    if name.lower() in ("pip", "setuptools"):
        continue
    classified = [text.rpartition(" :: ")[2] for text in data.get_all("Classifier") or () if text.startswith("License")]
    licence = data.get("License-Expression") or ", ".join(classified) or (data.get("License") or "").split("\\n")[0]
    shipped = [file.locate() for file in package.files or () if file.suffix != ".pyc"]  # which pip makes
    size = sum(path.stat().st_size for path in shipped if path.is_file())
    found[name] = [data["Version"], licence, size]
print(json.dumps(found))
"""


@dataclass
class Report:
    """What was looked at.

    Attributes:
        rows: of the table: what, whether it holds (None: was not looked at), details.
    """

    rows: list[tuple[str, bool | None, str]] = field(default_factory=list)

    def add(self, what: str, holds: bool | None, details: str = "") -> None:
        """Note and print a row."""
        self.rows.append((what, holds, details))
        print(f"{ {True: 'ok', False: 'NO', None: '--'}[holds] }  {what}: {details}", flush=True)

    @property
    def holds(self) -> bool:
        return all(row[1] is not False for row in self.rows)


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program, with what it printed; no variable of Python's or ours reaches it."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TILEWRIGHT_"))}
    words = [str(word) for word in command]
    elsewhere = tempfile.gettempdir()  # so that nothing is imported from here
    return subprocess.run(words, env=inherited | environment, capture_output=True, text=True, cwd=elsewhere)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a program ended with, for a table."""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1] if lines else f"status {done.returncode}"


def sources(folder: Path) -> None:
    """What is committed or would be, copied to a folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def built(folder: Path, python: Path, epoch: str) -> list[Path]:
    """Source archive and wheel of a fresh copy of the sources."""
    copy, out = folder / "copy", folder / "dist"
    copy.mkdir(parents=True)
    sources(copy)
    done = run(python, "-m", "build", "--no-isolation", "--outdir", out, copy, SOURCE_DATE_EPOCH=epoch)
    if done.returncode:
        raise SystemExit(f"the build failed:\n{done.stdout}{done.stderr}")
    return sorted(out.iterdir())


def names_in(archive: Path) -> list[str]:
    """Names of the files in a wheel or a source archive."""
    if archive.suffix == ".whl":
        return zipfile.ZipFile(archive).namelist()
    with tarfile.open(archive) as file:
        return file.getnames()


def check_archives(report: Report, work: Path, tools: Path) -> list[Path]:
    """Build twice, compare, and look inside."""
    stamp = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    epoch = stamp.stdout.strip() or "1577836800"
    first, second = (built(work / name, tools, epoch) for name in ("first", "second"))
    for one, other in zip(first, second, strict=True):
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (one, other)]
        report.add(f"two builds of {one.name}", digests[0] == digests[1], f"sha256 {digests[0][:16]}")
        names = names_in(one)
        wrong = [name for name in names if any(part in name for part in NOT_SHIPPED)]
        licensed = any(name.endswith("LICENSE") for name in names)
        report.add(
            f"files of {one.name}",
            licensed and not wrong,
            f"{len(names)} files{', ' if wrong else ''}{wrong[:3] or ''}",
        )
        size = one.stat().st_size
        report.add(f"size of {one.name}", one.suffix != ".whl" or size <= MOST_WHEEL_BYTES, f"{size:,} bytes")
    done = run(tools, "-m", "twine", "check", "--strict", *first)
    report.add("metadata (twine check --strict)", done.returncode == 0, last_line(done))
    return first


def check_environment(report: Report, name: str, python: str, wheel: Path, folder: Path) -> Path:
    """Install the wheel, and run a kernel without torch."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    inside = folder / "bin" / "python"
    done = run(inside, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", wheel)
    report.add(f"{name} installs", done.returncode == 0, last_line(done) if done.returncode else "")
    program = folder / "smoke.py"
    program.write_text(SMOKE, encoding="utf-8")
    done = run(inside, program, TILEWRIGHT_CACHE_DIR=str(folder / "cache"))
    report.add(f"{name} runs a kernel", done.returncode == 0, last_line(done) if done.returncode else "")
    done = run(folder / "bin" / "tilewright", "--version")
    report.add(f"{name} has the program", done.returncode == 0, last_line(done))
    return inside


def check_installed(report: Report, python: Path) -> None:
    """Licences and sizes of all that an installation brings."""
    packages: dict[str, tuple[str, str, int]] = json.loads(run(python, "-c", INSTALLED).stdout)
    unknown = [
        f"{name} ({row[1]})" for name, row in packages.items() if not any(part in row[1].lower() for part in LICENCES)
    ]
    report.add("licences", not unknown, ", ".join(unknown) or f"of {len(packages)} packages are on the list")
    total = sum(row[2] for row in packages.values())
    largest = sorted(packages.items(), key=lambda item: -item[1][2])[:4]
    shown = ", ".join(f"{name} {row[0]}: {row[2] / 1e6:.0f} MB" for name, row in largest)
    report.add("size installed", total <= MOST_INSTALLED_BYTES, f"{total / 1e6:.0f} MB ({shown})")


def check_tour(report: Report, python: Path) -> None:
    """Add torch to an environment, and run the tour."""
    name = f"{python.parents[1].name} tour"
    done = run(
        python,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--quiet",
        "torch",
        "--constraint",
        ROOT / "constraints.txt",
    )
    if done.returncode:
        report.add(name, None, f"torch cannot be installed: {last_line(done)}")
        return
    done = run(python, "-m", "tilewright.tools.cli", "tour", TILEWRIGHT_CACHE_DIR=str(python.parents[1] / "tour"))
    report.add(name, done.returncode == 0, last_line(done))


def unpacked(version: str) -> str | None:
    """A Python that `make python` made."""
    found = ROOT / ".venv-unstable" / "usr" / "bin" / f"python{version}"
    return str(found) if found.exists() else None


def main(folder: Path) -> int:
    report = Report()
    archives = check_archives(report, folder, Path(sys.executable))
    wheel = next(file for file in archives if file.suffix == ".whl")
    there = []
    for version in PYTHONS:
        name = f"PYTHON{version.replace('.', '')}"
        python = os.environ.get(name) or shutil.which(f"python{version}") or unpacked(version)
        if python is None:
            report.add(f"python{version}", None, f"is not on the PATH, nor in {name} (`make python PY={version}`)")
        else:
            there.append(check_environment(report, f"python{version}", python, wheel, folder / f"python{version}"))
    if there:
        check_installed(report, there[0])
    for python in there:
        check_tour(report, python)
    missing = sum(row[1] is None for row in report.rows)
    verdict = "all that was looked at holds" if report.holds else "no release must be made of this"
    print(f"{len(report.rows)} looked at, {missing} could not be: {verdict}")
    return not report.holds


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(main(Path(sys.argv[1]).absolute()))
    with tempfile.TemporaryDirectory(prefix="tilewright-release-") as name:
        sys.exit(main(Path(name)))
