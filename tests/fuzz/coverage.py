"""`python -m tests.fuzz.coverage`: how many random kernels of 2,000 hold each name of the language and each form.

What less than one of a hundred holds is missing: two such things meet in a kernel of ten thousand. `--pairs` tells the
pairs of forms that no kernel holds.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

import tilewright.language as tl
from tests.fuzz.generator import Profile, generate
from tilewright.base.callable import BlockFunction
from tilewright.ops.builtin import Builtin

LEAST = 0.01
"""The part of all kernels that must hold a thing."""

LEFT_OUT = frozenset((
    # They wait for other programs, print, or say what only one target has.
    "atomic_poll", "device_print", "static_print", "inline_asm_elementwise", "condition",
    # Parts of those that are drawn, or other spellings of them.
    "philox_impl", "pair_uniform_to_normal", "uint_to_uniform_float", "store_tensor_descriptor", "to_tensor", "randn4x",
    "expect_zero", "aggregate_replace",
    "dot_scaled",  # `tests/ops` compares it with products of what its operands stand for
))  # fmt: skip

_TYPES = (
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 float8e5 float8e4nv".split()
)
_INDENTED = r"\n(?P<pad> +)"
FORMS: dict[str, str] = {
    **{f"elements {name}": rf"'dtype': '{name}'" for name in _TYPES},
    **{f"parameter {name}": rf"'kind': 'scalar', 'dtype': '{name}'" for name in ("int32", "int64", "float32", "int1")},
    "for": r"\n +for \w+ in (?:tl\.)?range\(",
    "for in a for": _INDENTED + r"for .*:\n(?:(?P=pad) .*\n)*?(?P=pad) +for ",
    "while in a loop": _INDENTED + r"(?:for|while) .*:\n(?:(?P=pad) .*\n)*?(?P=pad) +while ",
    "branch in a loop": _INDENTED + r"(?:for|while) .*:\n(?:(?P=pad) .*\n)*?(?P=pad) +if ",
    "loop in a branch": _INDENTED + r"if .*:\n(?:(?P=pad) .*\n)*?(?P=pad) +(?:for|while) ",
    "store in a loop": _INDENTED + r"for .*:\n(?:(?P=pad) .*\n)*?(?P=pad) +tl\.store",
    "reduction in a loop": _INDENTED + r"for .*:\n(?:(?P=pad) .*\n)*?(?P=pad) .*tl\.(?:sum|max|min|reduce)\(",
    "product in a loop": _INDENTED + r"for .*:\n(?:(?P=pad) .*\n)*?(?P=pad) .*tl\.dot\(",
    "product in a branch": _INDENTED + r"if .*:\n(?:(?P=pad) .*\n)*?(?P=pad) .*tl\.dot\(",
    "sums of products that the loop reads": r"acc\w+ = tl\.(?:maximum|where)\(acc",
    "float carried by a loop": r"\n     +[tu]\d+ = tl\.",
    "running softmax": r"float\('-inf'\)",
    "pair carried by a loop": r"\n     +z\d+ = ",
    "step down": r"range\(.*, -\d+\)",
    "bounds from memory": r"range\(.*tl\.load",
    "hints of a loop": r"tl\.range\(.*(?:num_stages|unroll|flatten|disallow)",
    "while": r"\n +while ",
    "while of several conditions": r"\n +while .*(?:&|\band\b|\|)",
    "break": r"\n +break\n", "continue": r"\n +continue\n", "return": r"\n        +return\n",
    "choice of scalars": r" if .* else ", "and, or, not of scalars": r"\b(?:and|or|not)\b",
    "closure": r"\n +def |lambda", "aggregate": r"Affine\(", "call that stays": r"scalar_steps\(",
    "other that is not 0": r"other=-?(?:[1-9]|v\d)", "no other": r"tl\.load\([^\n]*mask=(?![^\n]*other)",
    "mask at an end of a type": r"'fill': 'ends -?\d{2,}|'value': -?\d{5,}",
    "bounds of rows": r"'fill': 'near", "floats at the ends": r"'fill': 'extreme'",
    "NaN and infinities": r"'fill': 'special'",
    "hint of a load": r"cache_modifier|eviction_policy|volatile", "pointers chosen": r"q\d+ = (?:tl\.where\(|\()\w",
    "one array as two": r"'alias'", "unaligned": r"'aligned': False",
    "block that leaves its tensor": r"boundary_check=\(\d", "block of NaN": r'padding_option="nan"',
    "descriptor": r"make_tensor_descriptor", "descriptor of rows": r"\.gather\(",
    "atomic of a descriptor": r"\.atomic_",
    "result of an atomic": r"= tl\.atomic_(?!load)", "order of an atomic": r"sem=",
    "several axes of programs": r"'grid': \(\d, \d", "flush of fused products": r"'enable_fp_fusion': False",
    "reduction of several": r"tl\.reduce\(\(", "scan of several": r"tl\.associative_scan\(\(",
    "8-bit products": r"tl\.dot\(x\d+, y\d+(?:, max|\))",
}  # fmt: skip


def names() -> list[str]:
    """The functions of the language that kernels may hold."""
    found = ((name, getattr(tl, name)) for name in tl.__all__)
    return sorted(name for name, one in found if isinstance(one, Builtin | BlockFunction) and name not in LEFT_OUT)


def held(text: str) -> set[str]:
    """The names and forms in the text of a case."""
    called = set(re.findall(r"\.(\w+)\(", text))
    return {name for name in names() if name in called} | {
        form for form, said in FORMS.items() if re.search(said, text)
    }


def counted(seeds: Iterable[int]) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """In how many kernels, half of them of any shape, each thing is, and each pair of forms."""
    single, pairs = Counter[str](), Counter[tuple[str, str]]()
    for seed in seeds:
        found = held(generate(seed, Profile(any_shape=seed % 2 == 1)).source())
        single.update(found)
        pairs.update(itertools.combinations(sorted(found & FORMS.keys()), 2))
    return single, pairs


def missing(single: Counter[str], kernels: int, least: float = LEAST) -> list[str]:
    """What too few kernels hold."""
    return [name for name in (*names(), *FORMS) if single[name] < least * kernels]


def main(arguments: Sequence[str]) -> int:
    """Print the table, what is rarest first; 1 if something is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.coverage", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pairs", action="store_true")
    given = parser.parse_args(arguments)
    single, pairs = counted(range(given.seed, given.seed + given.cases))
    for name in sorted((*names(), *FORMS), key=lambda name: single[name]):
        print(f"{single[name]:6} {name}")
    if given.pairs:
        absent = [pair for pair in itertools.combinations(sorted(FORMS), 2) if not pairs[pair]]
        print(f"{len(absent)} of {len(FORMS) * (len(FORMS) - 1) // 2} pairs of forms in no kernel:")
        print("\n".join(f"    {one} with {other}" for one, other in absent))
    return int(bool(missing(single, given.cases)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
