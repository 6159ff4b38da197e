"""Names of CPUs and features that LLVM would end the process for are refused before it sees them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilewright.backends.llvm import names
from tilewright.backends.llvm.features import _IMPLIED, describe
from tilewright.backends.llvm.names import check_names, names_in
from tilewright.base.errors import DeviceError

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(
    ("triple", "cpu", "flags", "message"),
    [
        (X86, "foo", "", "knows no CPU 'foo' of x86_64"),
        (X86, "x86-64-v9", "", "near names are x86-64-v4"),
        (X86, "apple-m1", "", "knows no CPU 'apple-m1' of x86_64"),
        (ARM, "znver4", "", "knows no CPU 'znver4' of aarch64"),
        (X86, "i386", "", "cannot compile for the CPU 'i386' of x86_64"),
        (X86, "x86-64-v3", "garbage, -avx", "'garbage' is no change of a CPU's features"),
        (X86, "x86-64-v3", "+avxx", "knows no feature 'avxx' of x86_64"),
        ("nonsense", "foo", "", "does not know the target triple 'nonsense'"),
    ],
)
def test_what_llvm_would_end_the_process_for_is_refused(triple: str, cpu: str, flags: str, message: str) -> None:
    with pytest.raises(DeviceError) as raised:
        check_names(describe(triple, cpu, flags))
    assert message in str(raised.value)


def test_names_of_llvm_that_are_not_in_our_table_are_taken() -> None:
    check_names(describe(X86, "tigerlake", "+avx512bf16"))
    check_names(describe(ARM, "apple-m1", "+crc"))


@pytest.mark.parametrize(("triple", "own"), [(X86, "64bit"), (ARM, "neon")])
def test_llvm_has_every_name_of_our_table(triple: str, own: str) -> None:
    command = [sys.executable, "-c", names._ASK, triple, "", ""]
    cpus, features = names_in(subprocess.run(command, capture_output=True, text=True, check=True).stderr)
    listed = {cpu: set(text.split()) for cpu, text in _IMPLIED.items() if own in text.split()}
    assert len(listed) > 5 and listed.keys() <= cpus and set().union(*listed.values()) <= features
