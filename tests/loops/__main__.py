"""`python -m tests.loops`: write the classes of all families anew; the diff shows what became one or came apart."""

from __future__ import annotations

from tests.loops.families import FAMILIES, GOLDEN, golden_file, golden_text

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for family in FAMILIES:
        golden_file(family).write_text(golden_text(family), encoding="utf-8")
        print(golden_file(family).name)
