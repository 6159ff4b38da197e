"""The command line: options, exit status, messages."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.fake_cuda import FakeCuda, installed
from tilewright.base.disk_cache import DiskCache
from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs
from tilewright.base.version import __version__
from tilewright.tools import aot, cli, doctor, examples


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)
    return DiskCache(tmp_path, knobs.cache.size)


def _invoke(*arguments: str):
    return CliRunner().invoke(cli.main, arguments, catch_exceptions=False)


WRITTEN_FOR_TRITON = """
import numpy
import triton
import triton.language as tl

@triton.jit
def double(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2)

double[(2,)](numpy.ones(100, numpy.float32), 100, B=64)
"""


def test_commands_run_programs_written_for_triton(tmp_path):
    """In a process of their own: names that mean Tilewright once do so to the end."""
    program = tmp_path / "theirs.py"
    program.write_text(WRITTEN_FOR_TRITON)
    command = [sys.executable, "-m", "tilewright", "--as-triton", "sanitize", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert "out of bounds: program (1, 0, 0) of double stores x[" in done.stderr


def test_version():
    assert _invoke("--version").output == f"tilewright, version {__version__}\n"


def test_module_runs_as_a_process():
    done = subprocess.run(
        [sys.executable, "-m", "tilewright.tools.cli", "--version"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert __version__ in done.stdout


def test_cache_info_and_clear(cache):
    assert cache.put("ab" * 32, b"x" * 1000)
    assert ": 1 entries, 1." in _invoke("cache", "info").output
    assert "removed 1 entries" in _invoke("cache", "clear").output
    assert ": 0 entries, 0 bytes" in _invoke("cache", "info").output


@pytest.fixture
def kept(cache, file):
    """A cache with two kernels, one of them damaged, and the file of its entry."""
    for signature in ("*fp32, *fp32, i32, 64", "*fp32, *fp32, i32, 128"):
        assert _invoke("compile", f"{file}:add", "-s", signature).exit_code == 0
    kernels = [path for key, path, _ in cache.entries() if cache.get(key).metadata.get("name") == "add"]
    assert len(kernels) == 2
    kernels[0].write_bytes(kernels[0].read_bytes()[:-1])
    return cache, kernels[0]


def test_cache_lists_what_it_holds(kept):
    output = _invoke("cache", "ls").output
    assert output.count("add") == 1 and "(damaged)" in output and "cpu:" in output and "0 h ago" in output
    assert "damaged" not in _invoke("cache", "ls", "add").output


def test_cache_verifies_its_entries(kept):
    _, broken = kept
    done = _invoke("cache", "verify")
    assert done.exit_code == 1 and broken.stem in done.output and "1 damaged" in done.output
    done = _invoke("cache", "verify", "--remove")
    assert done.exit_code == 0 and not broken.exists()
    assert "0 damaged" in _invoke("cache", "verify").output


def test_cache_drops_what_is_old(cache):
    for index in range(4):
        cache.put(f"{index:064x}", b"x" * 1000)
        age = time.time() - 86400 * (10 - index)
        os.utime(cache._path(f"{index:064x}"), (age, age))
    assert "dropped 2 entries" in _invoke("cache", "gc", "--days", "8.5").output
    assert "dropped 1 entries" in _invoke("cache", "gc", "--max-bytes", "1500").output
    assert cache.get(f"{3:064x}") and not cache.get(f"{2:064x}")
    assert "dropped 0 entries" in _invoke("cache", "gc").output


def test_a_cache_is_carried_elsewhere(kept, tmp_path, monkeypatch):
    cache, broken = kept
    results = tmp_path / "tuning" / "scale-0.json"
    results.parent.mkdir()
    results.write_text('{"kernel": "scale", "results": {"a": {"when": "2026-01-02", "configs": []}}}')
    archive = tmp_path / "kernels.tar"
    assert "1 files of tuning results" in _invoke("cache", "export", str(archive)).output
    other = DiskCache(tmp_path / "other", knobs.cache.size)
    monkeypatch.setattr(knobs.cache, "dir", other.folder)
    mine = other.folder / "tuning" / "scale-0.json"
    mine.parent.mkdir(parents=True)
    mine.write_text('{"kernel": "scale", "results": {"b": {"when": "2026-01-01", "configs": []}}}')
    done = _invoke("cache", "import", str(archive))
    whole = {key for key, path, _ in cache.entries() if path != broken}
    assert done.exit_code == 0 and {key for key, _, _ in other.entries()} == whole
    assert set(json.loads(mine.read_text())["results"]) == {"a", "b"}


@pytest.mark.parametrize(
    "name", ["../../evil.tile", "/etc/x.tile", "ab/" + "c" * 62 + ".tile", "tuning/x.json", "notes"]
)
def test_an_archive_that_lies_is_not_taken(cache, tmp_path, name):
    archive = tmp_path / "kernels.tar"
    with tarfile.open(archive, "w") as tar:
        info = tarfile.TarInfo(name)
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    done = _invoke("cache", "import", str(archive))
    assert done.exit_code == 1 and f"not taken: {name}" in done.output and cache.size() == (0, 0)
    archive.write_bytes(b"no archive")
    done = _invoke("cache", "import", str(archive))
    assert done.exit_code == 1 and "cache export" in done.output


def test_doctor_shows_machine_and_knobs(cache, tmp_path):
    output = _invoke("doctor").output
    assert doctor.cpu_name() in output
    for _, variable, _, _ in knobs.describe():
        assert variable in output
    facts = doctor.facts()
    assert str(tmp_path) in facts["disk cache"]
    assert f"numpy {doctor.version('numpy')}" in facts["packages"]
    assert doctor.version("no-such-package") == "not installed"


def test_a_report_for_an_issue_has_the_facts_and_the_settings_and_no_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(knobs.cache, "dir", tmp_path / "kernels")
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "3")
    monkeypatch.delenv("TILEWRIGHT_DUMP_DIR", raising=False)
    lines = _invoke("doctor", "--report").output.splitlines()
    assert lines[0] == lines[-1] == "```"
    assert f"Tilewright: {__version__}" in lines
    assert any(line.startswith("disk cache: ~/kernels: ") for line in lines)
    assert any(line.startswith("TILEWRIGHT_NUM_THREADS (cpu.num_threads): ") for line in lines)
    assert not any(str(tmp_path) in line or "DUMP_DIR" in line for line in lines)


def test_doctor_tells_of_gpus(cache):
    with installed(FakeCuda(devices=1, version=12080)):
        facts = doctor.facts()
    assert facts["CUDA driver"] == "CUDA 12.8" and "compute capability 9.0, 132 multi" in facts["GPU 0"]
    assert "cuda:90 (PTX 8.6)" in facts["GPU targets"] and facts["PTX assembler"]
    with installed(None):
        assert "no NVIDIA driver" in doctor.facts()["CUDA driver"]


# --- compile ------------------------------------------------------------------------------------------------

KERNEL = """
import tilewright
import tilewright.language as tl

@tilewright.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask) + 1, mask)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "add.py"
    path.write_text(KERNEL)
    return path


def test_compile_for_this_machine(cache, file, tmp_path):
    out = tmp_path / "out"
    for told in ("ms", "from the disk cache"):
        output = _invoke("compile", f"{file}:add", "-s", "*fp32:16, *fp32:16, i32, 64", "-o", str(out)).output
        assert "add" in output and "cpu:" in output and told in output
        assert {path.suffix for path in out.iterdir()} == {".ttir", ".nest", ".loops", ".llir", ".obj", ".h"}
        for path in out.iterdir():
            path.unlink()


@pytest.mark.parametrize("capability", [80, 86, 89, 90, 100, 120])
def test_compile_for_a_gpu_that_is_not_here(cache, file, tmp_path, capability):
    target = f"cuda:{capability}"
    arguments = ("compile", f"{file}:add", "-t", target, "-s", "*fp32:16, *fp32:16, i32, 1024", "--num-warps", "8")
    result = _invoke(*arguments, "-o", str(tmp_path / "out"))
    assert target in result.output and "registers" in result.output
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {
        ".ttir",
        ".nest",
        ".tgir",
        ".llir",
        ".ptx",
        ".cubin",
        ".h",
        ".c",
    }
    assert ".reqntid 256" in (tmp_path / "out" / "add.ptx").read_text()


def test_compile_finds_modules_beside_the_file(cache, file, tmp_path):
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "neighbour_of_add.py").write_text("WIDTH = 64\n")
    (beside / "add.py").write_text(f"from neighbour_of_add import WIDTH\n{Path(file).read_text()}")
    result = _invoke("compile", f"{beside / 'add.py'}:add", "-s", "*fp32, *fp32, i32, 64", "-t", "cuda:90")
    assert result.exit_code == 0, result.output
    assert str(beside) not in sys.path


@pytest.mark.parametrize(
    ("kernel", "signature", "said"),
    [
        ("dummy_address.py:add", "i32", "no file dummy_address.py"),
        ("add", "i32", "FILE.py:KERNEL"),
        ("{file}:sub", "i32", "no kernel 'sub'\nhint: it has add"),
        ("{file}:add", "i32", "1 entries, add has 4 parameters"),
        ("{file}:add", "*fp32, *fp32, i99, 64", "'i99' is neither a type nor a constant"),
    ],
)
def test_compile_says_what_is_wrong(cache, file, kernel, signature, said):
    result = _invoke("compile", kernel.format(file=file), "-s", signature)
    assert result.exit_code == 1 and said in result.output


@pytest.mark.parametrize(
    ("target", "said", "unsaid"),
    [
        (
            "cpu:x86-64-v4",
            ["yes  non-temporal stores", "yes  tail chunks: left out", "6 yes, 0 no"],
            ["wgmma"],
        ),
        ("cpu:x86-64-v3", ["no   non-temporal stores: the target has no stores of whole lines"], []),
        ("cuda:90", ["yes  no barrier"], ["chunks"]),
    ],
)
def test_explain_tells_what_is_done_and_why_not(cache, file, target, said, unsaid):
    for _ in range(2):  # compiled, then from the disk cache
        output = _invoke("explain", f"{file}:add", "-t", target, "-s", "*fp32:16, *fp32:16, i32, 1024").output
        assert "tl.store(y_ptr + offsets" in output
        assert all(text in output for text in said) and not any(text in output for text in unsaid)


def test_bundle_writes_every_combination(cache, file, tmp_path):
    out = tmp_path / "kernels.twb"
    arguments = ("bundle", f"{file}:add", "-t", "cpu", "-t", "cuda:90", "-o", str(out), "-s")
    done = _invoke(*arguments, "*fp32, *fp32, i32|i32:16, 64|128")
    assert done.exit_code == 0 and done.output.count("add for cpu:") == 4 == done.output.count("add for cuda:90")
    assert len(tilewright.load_bundle(out)["add"].variants()) == 8
    shown = [line.split(": ", 1)[1] for line in done.output.splitlines() if line.startswith("add for cuda:90")]
    kinds = [f"x_ptr: *fp32, y_ptr: *fp32, n: {n}, BLOCK: {block}" for n in ("i32", "i32:16") for block in (64, 128)]
    assert sorted(shown) == sorted(kinds)
    for signature, said in (("*fp32, *fp32, i32", "3 entries"), ("*fp32, *fp32, i32, word", "neither a type")):
        assert said in _invoke(*arguments, signature).output


def test_bundle_tells_each_variant_in_words_that_compile_it_again(cache, tmp_path):
    path, out = tmp_path / "kinds.py", tmp_path / "kernels.twb"
    path.write_text(
        "import tilewright, tilewright.language as tl\n\n@tilewright.jit\n"
        "def kinds(x_ptr, n, scale, flag, word: tl.constexpr, dtype: tl.constexpr, B: tl.constexpr):\n"
        "    i = tl.arange(0, B)\n"
        "    y = tl.load(x_ptr + i, mask=i < n) * scale if word is not None else 0.5\n"
        "    tl.store(x_ptr + i, y.to(dtype) if word == 'cast' else 1.0, mask=(i < n) & flag)\n"
    )
    signature = "*fp32|*fp32:16, i32|i32:16, fp32, u1, 'cast'|None, tl.float16|tl.float32, 64|128"
    done = _invoke("bundle", f"{path}:kinds", "-t", "cpu", "-o", str(out), "-s", signature)
    assert done.exit_code == 0, done.output
    shown = [line.split(": ", 1)[1] for line in done.output.splitlines() if line.startswith("kinds for cpu:")]
    assert len(shown) == len(set(shown)) == 32
    hashes = {kernel.hash for kernel in aot.bundle_file([f"{path}:kinds"], [signature], [], {}, out)}
    for line in shown[::5]:
        again = ", ".join(entry.split(": ", 1)[1] for entry in line.split(", "))
        (kernel,) = aot.bundle_file([f"{path}:kinds"], [again], [], {}, tmp_path / "one.twb")
        assert kernel.hash in hashes and aot.signature_of(kernel) == line


def test_explain_can_leave_out_what_is_done(cache, file):
    output = _invoke("explain", f"{file}:add", "-t", "cpu:x86-64-v3", "-s", "*fp32, *fp32, i32, 1024", "--no").output
    assert "0 yes, 1 no" in output and "chunks without masks" not in output


def test_explain_says_what_is_proved_for_arguments_up_to_a_size(cache, file):
    asked = ("explain", f"{file}:add", "-s", "*fp32, *fp32, i32, 128", "--no", "--grid", "8", "--given")
    output = _invoke(*asked, "x_ptr=1000, y_ptr=1000, n=1000").output
    assert "add cannot leave its arguments, whatever they hold, with n <= 1000, grid (8, 1, 1)" in output
    output = _invoke(*asked, "x_ptr=1000, y_ptr=900, n=1000").output
    assert "no proof of bounds: store" in output and "no two programs" in output
    assert "y_ptr is missing" in _invoke(*asked, "x_ptr=1000, n=1000").output
    assert "no sizes" in _invoke(*asked, "x_ptr").output


def test_the_knob_explains_every_compilation(cache, file, monkeypatch, capsys):
    monkeypatch.setattr(knobs.compilation, "explain", True)
    for _ in range(2):  # from the disk cache too
        aot.compile_file(f"{file}:add", "*fp32, *fp32, i32, 1024", "cpu:x86-64-v4", {})
        told = capsys.readouterr().err
        assert "add for cpu:x86-64-v4" in told and "yes  chunks without masks" in told and f"{file}:" in told


def test_signatures_are_read():
    assert aot.read_signature("*fp32:16, i32, 'a', 2.5,None, True, *u1") == [
        ("*fp32", None, True),
        ("i32", None, False),
        ("", "a", False),
        ("", 2.5, False),
        ("", None, False),
        ("", True, False),
        ("*u1", None, False),
    ]
    assert aot.read_signature("tl.float32, fp32") == [("", tl.float32, False), ("fp32", None, False)]  # fmt: skip


@pytest.mark.parametrize(("passed", "status"), [(True, 0), (False, 1)])
def test_tour_status_tells_whether_checks_passed(monkeypatch, passed, status):
    seen = []
    monkeypatch.setattr(cli.show, "tour", lambda console, *arguments: seen.append(arguments) or passed)
    assert _invoke("tour", "--threads", "2", "--quick", "--only", "soft").exit_code == status
    assert seen == [(2, True, "soft")]


def test_errors_of_the_library_are_messages(monkeypatch):
    def tour(*arguments):
        raise TilewrightError("the reason", hint="the remedy")

    monkeypatch.setattr(cli.show, "tour", tour)
    result = _invoke("tour")
    assert result.exit_code == 1
    assert "Error: the reason\nhint: the remedy" in result.output


def test_examples_are_found_and_loaded_anew():
    pytest.importorskip("torch")
    assert (examples.folder() / "matmul.py").is_file()
    first, second = examples.load("vector_add"), examples.load("vector_add")
    assert first is not second and first.add_kernel is not second.add_kernel


@pytest.mark.parametrize("command", [["report", "{program}", "-o", "{out}"], ["cache", "export", "{out}"],
                                     ["layout", "register=(0,1); lane=(1,0) (2,0) : 4x2", "-o", "{out}"],
                                     ["report", "{program}", "--trace", "{out}"]])  # fmt: skip
def test_a_file_in_no_folder_is_refused_ahead_of_the_work(command, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("raise AssertionError('it ran')\n")
    result = _invoke(*[word.format(program=program, out=tmp_path / "none" / "made") for word in command])
    assert result.exit_code == 2
    assert f"there is no folder {tmp_path / 'none'}" in result.output


def test_sanitize_says_that_there_is_no_program_and_that_one_has_failed(tmp_path, monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_SANITIZE", raising=False)
    result = _invoke("sanitize", str(tmp_path / "none.py"))
    assert result.exit_code == 1
    assert result.output.startswith("Error: there is no file")
    (tmp_path / "fails.py").write_text("raise SystemExit(3)\n")
    result = _invoke("sanitize", str(tmp_path / "fails.py"))
    assert result.exit_code == 3
    assert "no faults until the program ended with status 3" in result.output
    monkeypatch.delenv("TILEWRIGHT_SANITIZE", raising=False)


def test_report_refuses_an_unknown_check_ahead_of_the_run(tmp_path):
    (tmp_path / "program.py").write_text("raise AssertionError('it ran')\n")
    result = _invoke("report", str(tmp_path / "program.py"), "-c", "nothing")
    assert result.exit_code == 1
    assert "there is no check 'nothing'" in result.output


def test_explain_without_a_signature_names_the_parameters(cache, file):
    made = CliRunner().invoke(cli.main, ["explain", f"{file}:add"])
    assert made.exit_code != 0 and "has 0 entries" in made.output and '--signature "*fp32, i32, 128"' in made.output
