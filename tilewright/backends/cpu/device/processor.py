"""LLVM IR of what the launcher asks of a processor: a pause while it waits, and a clock."""

from __future__ import annotations

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()\n", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)\n", "call void @llvm.aarch64.hint(i32 1)"),
}

# A clock that any program may read; without one every team counts as worth it.
_TICKS = {
    "x86_64": ("declare i64 @llvm.readcyclecounter()\n", "call i64 @llvm.readcyclecounter()"),
    "aarch64": ("", 'call i64 asm sideeffect "mrs $0, cntvct_el0", "=r"()'),
}


def processor_ir(triple: str) -> str:
    """`void tw_pause()` and `i64 tw_ticks()` for the target `triple`."""
    arch = triple.split("-", 1)[0].replace("arm64", "aarch64")
    declaration, call = _PAUSE.get(arch, ("", ""))
    clock, ticks = _TICKS.get(arch, ("", "add i64 0, 0"))
    return (
        f"{declaration}{clock}"
        f"define internal i64 @tw_ticks() nounwind alwaysinline {{\n  %now = {ticks}\n  ret i64 %now\n}}\n"
        f"define internal void @tw_pause() nounwind alwaysinline {{\n  {call}\n  ret void\n}}\n"
    )
