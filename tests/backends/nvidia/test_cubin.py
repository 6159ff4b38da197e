"""PTX to machine code: nvJitLink for real, ptxas as a program that a test writes, and the choice between them."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright
from tests.backends.nvidia.ptx_cases import ADD
from tests.backends.nvidia.test_rounded import rounded_product
from tilewright.backends.nvidia import cubin, ptx, toolkit
from tilewright.backends.nvidia.arch import CAPABILITIES, arch_of
from tilewright.base.decision import No, Yes
from tilewright.base.errors import InternalError, OutOfResources, UnsupportedError
from tilewright.base.knobs import knobs
from tilewright.compiler import ASTSource

needs_nvjitlink = pytest.mark.skipif(not toolkit.libraries("nvJitLink"), reason="nvidia-nvjitlink is not installed")

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90a'
ptxas info    : Function properties for other
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas info    : Compiling entry function 'add' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'add'
ptxas info    : Function properties for add
    128 bytes stack frame, 96 bytes spill stores, 64 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 4096 bytes smem, 400 bytes cmem[0]
"""

_LOADS = "\n".join(f"  %v{i} = load volatile i32, ptr %p" for i in range(64))
_STORES = "\n".join(f"  store volatile i32 %v{i}, ptr %p" for i in range(64))
MANY_VALUES = f"define ptx_kernel void @add(ptr %p) {{\n{_LOADS}\n{_STORES}\n  ret void\n}}"


@pytest.fixture
def settings() -> Iterator[None]:
    before = (knobs.cuda.assembler, knobs.cuda.ptxas)
    cubin._found.cache_clear()
    yield
    knobs.cuda.assembler, knobs.cuda.ptxas = before
    cubin._found.cache_clear()


def fake_ptxas(folder: Path, body: str) -> Path:
    """A program that takes the place of ptxas: Python with `args` and, behind -o, `out`."""
    program = folder / "ptxas"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nargs = sys.argv[1:]\n"
        f"if args == ['--version']:\n    print('Cuda compilation tools, release 12.4, V12.4.131')\n    sys.exit()\n"
        f"out = args[args.index('-o') + 1]\n{body}\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


# --- nvJitLink --------------------------------------------------------------------------------------------


@needs_nvjitlink
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_architecture_assembles(capability: int) -> None:
    arch = arch_of(capability)
    made = cubin.assemble(ptx.compile_ptx(ADD, arch), arch, kernel="add")
    assert made is not None and made.image[:4] == b"\x7fELF"
    assert 4 <= made.registers <= 16 and (made.spill_bytes, made.stack_bytes, made.shared_bytes) == (0, 0, 0)


@needs_nvjitlink
def test_the_register_limit_reaches_the_assembler() -> None:
    source = ptx.compile_ptx(MANY_VALUES, arch_of(80))
    free, tight = (cubin.assemble(source, arch_of(80), kernel="add", max_registers=limit) for limit in (None, 24))
    assert free and tight
    assert free.registers > 64 and free.spill_bytes == 0
    assert tight.registers <= 24 and tight.spill_bytes > 0


@needs_nvjitlink
def test_machine_code_from_the_cache_of_the_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then its log has no line of the assembler's."""
    said = cubin.NvJitLink._text
    monkeypatch.setattr(
        cubin.NvJitLink,
        "_text",
        lambda tool, handle, what: re.sub(r"(?m)^ptxas.*\n", "", said(tool, handle, what)),
    )
    source = ptx.compile_ptx(MANY_VALUES, arch_of(80))
    free, tight = (cubin.assemble(source, arch_of(80), kernel="add", max_registers=limit) for limit in (None, 24))
    assert free and tight and "ptxas" not in free.log
    assert free.registers > 64 and (free.spill_bytes, free.stack_bytes) == (0, 0)
    assert tight.registers <= 24 and tight.spill_bytes == tight.stack_bytes > 0


@needs_nvjitlink
def test_refused_ptx_shows_its_lines() -> None:
    arch = arch_of(90)
    broken = ptx.compile_ptx(ADD, arch).replace("ret;", "frobnicate.b32 %r1;")
    with pytest.raises(InternalError, match="nvJitLink refuses the PTX of add") as raised:
        cubin.assemble(broken, arch, kernel="add")
    text = str(raised.value)
    number = broken.splitlines().index("\tfrobnicate.b32 %r1;") + 1
    assert f"line {number}: " in text and "    frobnicate.b32 %r1;" in text
    kept = Path(text.rpartition("the file ")[2])
    assert kept.read_text() == broken
    kept.unlink()


@needs_nvjitlink
def test_the_linker_says_its_version() -> None:
    tool = cubin.assembler()
    assert isinstance(tool, cubin.NvJitLink)
    assert int(tool.version().partition(".")[0]) == tool.major and tool.identity.startswith("nvJitLink lib")


# --- ptxas ------------------------------------------------------------------------------------------------


def test_ptxas_as_a_program(tmp_path: Path, settings: None) -> None:
    knobs.cuda.ptxas = fake_ptxas(
        tmp_path, f"open(out, 'wb').write(' '.join(args[:-3]).encode())\nsys.stderr.write({LOG!r})"
    )
    made = cubin.assemble("// ptx", arch_of(90), kernel="add", max_registers=168)
    assert made is not None and made.image == b"-arch=sm_90a -O3 -lineinfo -v"
    assert (made.registers, made.spill_bytes, made.stack_bytes, made.shared_bytes) == (168, 96, 128, 4096)
    assert len(made.notes) == 1 and "C7510" in made.notes[0]
    tool = cubin.assembler()
    assert isinstance(tool, cubin.Ptxas) and tool.major == 12


def test_ptxas_that_refuses(tmp_path: Path, settings: None) -> None:
    knobs.cuda.ptxas = fake_ptxas(tmp_path, "sys.exit('ptxas k.ptx, line 2; error   : Unknown symbol')")
    with pytest.raises(InternalError, match="ptxas refuses the PTX of add") as raised:
        cubin.assemble("// first\n  second;\n", arch_of(90), kernel="add")
    assert "line 2: Unknown symbol\n    second;" in str(raised.value)
    Path(str(raised.value).rpartition("the file ")[2]).unlink()


def test_a_limit_of_registers_that_an_instruction_passes(tmp_path: Path, settings: None) -> None:
    """A product of a warp group holds more than `maxnreg` allows."""
    told = "ptxas fatal : (C7602) Insufficient registers (64) to compile instruction at line 5 in function add. "
    told += "Try to compile with register target of 90 or higher."
    knobs.cuda.ptxas = fake_ptxas(tmp_path, f"sys.exit({told!r})")
    with pytest.raises(OutOfResources, match="registers, Required: 90, Hardware limit: 64"):
        cubin.assemble("// ptx", arch_of(90), kernel="add", max_registers=64)


# --- the choice -------------------------------------------------------------------------------------------


def choose(monkeypatch: pytest.MonkeyPatch, libraries: list[int], ptxas: Path | None, driver: int | None) -> object:
    monkeypatch.setattr(
        toolkit, "libraries", lambda stem: [(major, Path(f"lib{stem}.so.{major}")) for major in libraries]
    )
    monkeypatch.setattr(toolkit, "program", lambda name: ptxas)
    cubin._found.cache_clear()
    found = cubin.assembler(driver)
    return getattr(found, "major", None)


def test_tools_are_not_newer_than_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: None) -> None:
    program = fake_ptxas(tmp_path, "")
    assert choose(monkeypatch, [13, 12], None, None) == 13
    assert choose(monkeypatch, [13, 12], None, 13) == 13
    assert choose(monkeypatch, [13, 12], None, 12) == 12
    assert choose(monkeypatch, [13], program, 12) == 12  # ptxas 12.4
    assert choose(monkeypatch, [13], program, 11) is None
    assert choose(monkeypatch, [], None, None) is None


def test_the_driver_takes_what_no_tool_assembles(settings: None) -> None:
    knobs.cuda.assembler = "driver"
    assert cubin.assemble("// ptx", arch_of(90), kernel="add") is None


def test_wishes_that_cannot_be_met(monkeypatch: pytest.MonkeyPatch, settings: None, tmp_path: Path) -> None:
    knobs.cuda.assembler = "nasm"
    with pytest.raises(UnsupportedError, match="no assembler 'nasm'"):
        cubin.assembler()
    knobs.cuda.assembler = "nvjitlink"
    with pytest.raises(UnsupportedError, match=r"in a version that the driver \(CUDA 12\) knows") as raised:
        choose(monkeypatch, [13], None, 12)
    assert "nvidia-nvjitlink-cu12" in str(raised.value)
    knobs.cuda.assembler = "ptxas"
    with pytest.raises(UnsupportedError, match="ptxas is not found"):
        choose(monkeypatch, [13], None, None)
    knobs.cuda.ptxas = tmp_path / "nowhere"
    with pytest.raises(UnsupportedError, match="ptxas is not at"):
        cubin.assembler()


# --- whole programs -----------------------------------------------------------------------------------------


SERIAL = "info : (C7509) Potential Performance Loss: wgmma.mma_async instructions are serialized in the function 'add'"
QUIET = LOG.replace("C7510", "C1000")


def _linked(
    monkeypatch: pytest.MonkeyPatch, note: str, ptxas: Path | None, driver: int | None = None, ptx: str = "// ptx"
) -> cubin.Cubin:
    """What becomes of a kernel of which nvJitLink says `note`."""
    monkeypatch.setattr(toolkit, "libraries", lambda stem: [(12, Path("libnvJitLink.so.12"))])
    monkeypatch.setattr(toolkit, "program", lambda name: ptxas)
    monkeypatch.setattr(cubin.NvJitLink, "run", lambda tool, ptx, options: (b"linked", note))
    cubin._found.cache_clear()
    made = cubin.assemble(ptx, arch_of(90), kernel="add", driver_major=driver)
    assert made is not None
    return made


@pytest.mark.parametrize("note", [SERIAL, SERIAL.replace("C7509", "C7504")])
def test_what_the_linker_makes_serial_is_assembled_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: None, note: str
) -> None:
    program = fake_ptxas(tmp_path, f"open(out, 'wb').write(b'whole')\nsys.stderr.write({QUIET!r})")
    made = _linked(monkeypatch, note, program)
    assert made.image == b"whole" and (made.registers, made.spill_bytes) == (168, 96)
    assert isinstance(made.whole, Yes) and made.whole.plan == program and note[8:13] in made.whole.what
    assert _linked(monkeypatch, "info : nothing", program).image == b"linked"


@pytest.mark.parametrize(
    ("body", "driver", "reason"),
    [
        (None, None, "there is no ptxas"),
        ("open(out, 'wb').write(b'whole')", 11, "there is no ptxas"),  # that the driver would take: it has 12.4
        (f"open(out, 'wb').write(b'whole')\nsys.stderr.write({LOG!r})", None, "ptxas does so too"),
        ("sys.exit('no')", None, "ptxas refuses the kernel"),
    ],
    ids=["none", "too new", "the same", "refused"],
)
def test_what_the_linker_makes_serial_and_nobody_better(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: None, body: str | None, driver: int | None, reason: str
) -> None:
    program = None if body is None else fake_ptxas(tmp_path, body)
    if driver is not None:
        monkeypatch.setattr(cubin, "_found", lambda *_: cubin.NvJitLink(Path("libnvJitLink.so.11"), 11))
        monkeypatch.setattr(cubin._found, "cache_clear", lambda: None, raising=False)
    made = _linked(monkeypatch, SERIAL, program, driver)
    assert made.image == b"linked" and isinstance(made.whole, No) and reason in made.whole.reason
    assert ("nvidia-cuda-nvcc" in made.whole.instead) == ("no ptxas" in reason)


@pytest.mark.parametrize("body", ["open(out, 'wb').write(b'whole')", "sys.exit('no')", None])
def test_warps_that_hand_registers_on_are_assembled_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: None, body: str | None
) -> None:
    program = None if body is None else fake_ptxas(tmp_path, body)
    made = _linked(monkeypatch, "", program, ptx="setmaxnreg.dec.sync.aligned.u32 40;")
    good = body is not None and "whole" in body
    assert made.image == (b"whole" if good else b"linked") and isinstance(made.whole, Yes) == good
    assert good or "C7504" in made.whole.reason


def test_keys_know_of_ptxas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: None) -> None:
    program = fake_ptxas(tmp_path, "")
    library = tmp_path / "libnvJitLink.so.12"
    library.touch()
    monkeypatch.setattr(toolkit, "libraries", lambda stem: [(12, library)])
    monkeypatch.setattr(toolkit, "program", lambda name: None)
    cubin._found.cache_clear()
    assert cubin.identity().endswith("no ptxas")
    monkeypatch.setattr(toolkit, "program", lambda name: program)
    assert cubin.identity().endswith(cubin.Ptxas(program).identity)
    knobs.cuda.assembler = "nvjitlink"
    assert cubin.identity().endswith("no ptxas") and cubin.whole_program() is None


@pytest.mark.skipif(not toolkit.program("ptxas"), reason="ptxas is not installed")
@needs_nvjitlink
def test_a_function_called_beside_a_product() -> None:
    made = tilewright.compile(
        ASTSource(
            rounded_product,
            {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", "M": "i32", "N": "i32", "K": "i32", "s": "fp32"},
            {"HOW": "sin", "BM": 64, "BN": 64},
            {(place,): [["tt.divisibility", 16]] for place in range(6)},
        ),
        "cuda:90",
        options={"num_warps": 4},
    )
    (said,) = [decision for decision in made.decisions if decision.subject == "whole program"]
    assert said.taken and "C7509" in said.text and not cubin.serial_notes(made.metadata.notes)


# --- where tools are --------------------------------------------------------------------------------------


def test_wheels_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site, home = tmp_path / "site-packages", tmp_path / "cuda"
    for path in (
        site / "nvidia/cu13/lib/libnvJitLink.so.13",
        site / "nvidia/nvjitlink/lib/libnvJitLink.so.12",
        home / "lib64/libnvJitLink.so.13",
        home / "bin/nvdisasm",
        site / "triton/backends/nvidia/bin/ptxas",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(toolkit.sys, "path", [str(site)])
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert toolkit.libraries("nvJitLink") == [
        (13, site / "nvidia/cu13/lib/libnvJitLink.so.13"),
        (12, site / "nvidia/nvjitlink/lib/libnvJitLink.so.12"),
    ]
    toolkit.program.cache_clear()
    try:
        assert toolkit.program("ptxas") == site / "triton/backends/nvidia/bin/ptxas"
        assert toolkit.program("nvdisasm") == home / "bin/nvdisasm"
    finally:
        toolkit.program.cache_clear()


def test_no_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "program", lambda name: None)
    assert cubin.disassemble(b"\x7fELF") is None
