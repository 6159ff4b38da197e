"""A kernel that reads what is not there ends the process with its name; other faults are none of our affair."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tilewright.backends.cpu.device import faults
from tilewright.backends.llvm.codegen import Library, compile_object, load
from tilewright.backends.llvm.features import describe, host
from tilewright.base import system
from tilewright.base.system.darwin import Darwin

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or faults.faults_text(host().triple) is None, reason="there is a handler for Linux alone"
)

ON_X86 = pytest.mark.skipif(not host().is_x86, reason="other machines tell the address, or leave out its upper bits")
WORDS = faults._WORDS
PROGRAM = """
import ctypes, sys
import numpy, tilewright, tilewright.language as tl

tilewright.knobs.cpu.num_threads = 1


@tilewright.jit
def far(x, stride):
    i = tl.arange(0, 16)
    tl.store(x + i, tl.load(x + tl.program_id(0) * stride + i))


x = numpy.zeros(16, numpy.float32)
far[(1,)](x, 0)
print("alive", flush=True)
if sys.argv[1] == "kernel":
    far[(5,)](x, 1 << 40)
ctypes.string_at(8)
"""


def ended(folder: Path, where: str, *flags: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    environment = dict(os.environ, TILEWRIGHT_CACHE_DIR=str(folder / "cache"))
    command = [sys.executable, *flags, str(program), where]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "alive\n" and done.returncode == -signal.SIGSEGV
    return done


def test_a_fault_in_a_kernel_names_kernel_and_program(tmp_path: Path) -> None:
    said = ended(tmp_path, "kernel").stderr
    assert "kernel far, program 1, accessed the address 0x" in said and "TILEWRIGHT_INTERPRET=1" in said
    line = 1 + PROGRAM.splitlines().index("    tl.store(x + i, tl.load(x + tl.program_id(0) * stride + i))")
    placed = f"at or near line {line} of {tmp_path / 'program.py'}\n"
    assert placed in said
    assert placed in ended(tmp_path, "kernel").stderr  # from the disk cache


ARGUMENTS = """
import os, sys
import numpy, tilewright, tilewright.language as tl

tilewright.knobs.cpu.num_threads = 1


@tilewright.jit
def several(n, few, nothing, pair, far, B: tl.constexpr):
    i = tl.arange(0, B)
    if nothing is not None:
        tl.store(nothing + i, 1)
    tl.store(pair[1] + far + i, tl.load(few + i).to(tl.float64) + n)


few, wide = numpy.zeros(1024, numpy.int16), numpy.zeros(1 << 20)
for far in (-(1 << 38), -(1 << 40)):
    address = wide.ctypes.data + 8 * far
    counted = [("few", (address - few.ctypes.data) / 2), ("pair", far)]
    name, index = min(counted, key=lambda one: abs(address - (few if one[0] == "few" else wide).ctypes.data))
    print(f"  that is {name}[{int(index)}], counted from the argument that begins nearest to it")
    print(f"  it had {1024 if name == 'few' else 1 << 20} elements when a launch with it was prepared")
    child = os.fork()
    if not child:
        several[(1,)](1, few, None, (3, wide), far, B=1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 11
"""


def test_a_fault_names_argument_and_index(tmp_path: Path) -> None:
    program = tmp_path / "arguments.py"
    program.write_text(ARGUMENTS)
    environment = dict(os.environ, TILEWRIGHT_CACHE_DIR=str(tmp_path / "cache"))
    for _ in "compiled", "from the disk cache":
        command = [sys.executable, str(program)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        said = [line for line in done.stderr.splitlines() if "that is" in line or "it had" in line]
        assert said == done.stdout.splitlines()


VIEWS = """
import os
import numpy, tilewright, tilewright.language as tl

tilewright.knobs.cpu.num_threads = 1


@tilewright.jit
def beyond(x, at, step):
    if step == 16:
        tl.store(x + at * step, 1.0)


def ends(array, at, *before):
    child = os.fork()
    if not child:
        for other in before:
            beyond[(1,)](other, at, 32)
        beyond[(1,)](array, at, 16)
        os._exit(0)
    os.waitpid(child, 0)
    print("--", flush=True)


whole = numpy.zeros((64, 64), numpy.float32)
ends(whole[3], -(1 << 36))             # a row
ends(whole[:, 5], -(1 << 36))          # a column, with what lies between
ends(whole[::-1], -(1 << 36))          # whose elements lie below
ends(numpy.zeros(200000, numpy.float32), -(1 << 36), whole, numpy.zeros(100000, numpy.float32))  # not looked at
"""


def test_an_extent_is_that_of_the_view_and_of_no_other_array(tmp_path: Path) -> None:
    program = tmp_path / "views.py"
    program.write_text(VIEWS)
    environment = dict(os.environ, TILEWRIGHT_CACHE_DIR=str(tmp_path / "cache"))
    command = [sys.executable, str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    said = [line for line in done.stderr.splitlines() if "it had" in line]
    counts = [64, 63 * 64 + 1, 64]
    assert said == [f"  it had {count} elements when a launch with it was prepared" for count in counts]
    assert done.stderr.count("that is x[") == 4


WAYS = """
import os, sys
import numpy, tilewright, tilewright.language as tl

tilewright.knobs.cpu.num_threads = 1


@tilewright.jit
def fetch(p, i):
    return tl.load(p + i)  # helper


@tilewright.jit
def ways(x, far, n, WAY: tl.constexpr):
    i = tl.arange(0, 256)
    a = tl.load(x + i)
    b = tl.load(x + i + 256, mask=i < n)
    if WAY == "masked":
        b += tl.load(x + far + i, mask=i < n)  # masked
    if WAY == "scalar":
        a += tl.load(x + far)  # scalar
    if WAY == "gathered":
        b += tl.load(x + far * (i % 7))  # gathered
    if WAY == "helper":
        b += fetch(x, i * far) * 2.0
    if WAY == "product":
        k = tl.reshape(i, (16, 16))
        left = tl.load(x + far + k)  # product
        a += tl.reshape(tl.dot(left, tl.trans(left)), (256,))
    if WAY == "atomic":
        tl.atomic_add(x + far + i, a)  # atomic
    if WAY == "looped":
        for j in range(n):
            a += tl.load(x + j * far + i)  # looped
    if WAY == "summed":
        rows = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        b += tl.sum(tl.sum(tl.load(x + far + rows), 0), 0)  # summed
    tl.store(x + i, a + b)
    if WAY == "stored":
        tl.store(x + far + i, a * b)  # stored


x = numpy.zeros(512, numpy.float32)
for way in sys.argv[1:]:
    print(way, file=sys.stderr, flush=True)
    child = os.fork()
    if not child:
        ways[(1,)](x, -(1 << SHIFT), 3, way)
        os._exit(0)
    assert os.waitpid(child, 0)[1] in SIGNALS
"""
KINDS = ["masked", "scalar", "gathered", "helper", "product", "atomic", "looped", "summed", "stored"]


@pytest.mark.parametrize("outside", [False, pytest.param(True, marks=ON_X86)])
def test_every_access_has_a_line(tmp_path: Path, outside: bool) -> None:
    """Outside of the address space there is no address to tell, and the signal depends on the register that holds it."""
    program = tmp_path / "ways.py"
    program.write_text(
        WAYS.replace("SHIFT", "58" if outside else "40").replace("SIGNALS", "(7, 11)" if outside else "(11,)")
    )
    environment = dict(os.environ, TILEWRIGHT_CACHE_DIR=str(tmp_path / "cache"))
    command = [sys.executable, str(program), *KINDS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    lines = {text.rpartition("# ")[2]: n for n, text in enumerate(WAYS.splitlines(), 1) if "  # " in text}
    said = done.stderr.splitlines()
    for way in KINDS:
        after = said[said.index(way) + 1 :]
        place = next(text.strip() for text in after if "at or near" in text)
        assert outside == any("an address outside of the address space" in text for text in after[:2]), way
        assert place == f"at or near line {lines[way]} of {program}", way


CUT = """
import mmap, os, sys
import numpy, tilewright, tilewright.language as tl

tilewright.knobs.cpu.num_threads = 1


@tilewright.jit
def copied(x, y):
    i = tl.arange(0, 1024)
    tl.store(y + i, tl.load(x + i))


with open(sys.argv[1], "wb+") as file:
    file.truncate(4096)
    x = numpy.frombuffer(mmap.mmap(file.fileno(), 4096), numpy.float32)
    y = numpy.zeros_like(x)
    copied[(1,)](x, y)
    file.truncate(0)
    copied[(1,)](x, y)
"""


def test_memory_of_a_file_that_was_cut(tmp_path: Path) -> None:
    program = tmp_path / "cut.py"
    program.write_text(CUT)
    command = [sys.executable, str(program), str(tmp_path / "file")]
    environment = dict(os.environ, TILEWRIGHT_CACHE_DIR=str(tmp_path / "cache"))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGBUS
    assert "kernel copied, program 0, accessed the address 0x" in done.stderr
    assert "tl.load(x + i)" in CUT.splitlines()[int(done.stderr.partition("near line ")[2].split()[0]) - 1]


def test_what_was_there_before_takes_over(tmp_path: Path) -> None:
    said = ended(tmp_path, "kernel", "-X", "faulthandler").stderr
    assert "kernel far, program 1" in said and "Fatal Python error: Segmentation fault" in said


def test_faults_of_others_are_theirs(tmp_path: Path) -> None:
    assert "Tilewright" not in ended(tmp_path, "elsewhere").stderr


def test_rows_of_kernels_that_are_gone_are_used_again() -> None:
    known = faults.Faults(load(compile_object(str(faults.faults_text(host().triple)), host()), faults.EXPORTS))
    image = compile_object(f'target triple = "{host().triple}"\ndefine void @f() {{ ret void }}', host())
    codes: list[Library] = []
    for number in range(100):  # the table has grown
        codes.append(load(image, ["f"]))
        known.add(codes[-1], f"kernel{number}")
    table = known._tables[-1]
    assert known._words[0] == 100 and known._words[1] == _address(table)
    for row, code in enumerate(codes):
        start, end, name = table[WORDS * row : WORDS * row + 3]
        assert start <= code.address("f") < end and _text(name) == f"kernel{row}"
    del codes[40:], code
    gc.collect()
    again = load(image, ["f"])
    known.add(again, "again")
    rows = [row for row in range(100) if table[WORDS * row]]
    assert known._words[0] == 100 and len(rows) == 41 and "again" in {_text(table[WORDS * row + 2]) for row in rows}


def test_a_kernel_may_go_while_another_comes() -> None:
    """The collector runs where it likes, also within `add`."""
    known = faults.Faults(load(compile_object(str(faults.faults_text(host().triple)), host()), faults.EXPORTS))
    done = threading.Event()

    def collected() -> None:
        with known._lock:
            known._remove(0)
        done.set()

    threading.Thread(target=collected, daemon=True).start()
    assert done.wait(20)


def _address(table: object) -> int:
    return ctypes.addressof(table)  # type: ignore[arg-type]


def _text(address: int) -> str:
    return ctypes.string_at(address).decode()


def test_the_handler_of_a_mac_follows_the_pointer_to_the_registers() -> None:
    triple = "arm64-apple-macosx14.0.0"
    with system.pretend(Darwin()):
        text = faults.faults_text(triple)
        assert text is not None and faults.faults_text("x86_64-apple-macosx14.0.0") is None
    assert "%registers = load ptr, ptr %to" in text and "ptr %registers, i64 272" in text
    assert compile_object(text, describe(triple))[:4] == b"\xcf\xfa\xed\xfe"
