"""All kernels whose decisions are kept as texts, by family, and the targets of each family."""

from __future__ import annotations

from tests.decisions.add import ADD
from tests.decisions.bags import BAGS
from tests.decisions.examples import example_kernels
from tests.decisions.further import FURTHER
from tests.decisions.generated import GENERATED
from tests.decisions.harness import Spelling
from tests.decisions.layer_norm import LAYER_NORM
from tests.decisions.matmul import MATMUL
from tests.decisions.matvec import MATVEC
from tests.decisions.others import OTHERS
from tests.decisions.persistent import OTHER_LOOPS, PERSISTENT, SCALED_BLOCKS
from tests.decisions.roles import ROLES
from tests.decisions.rows import ROWS
from tests.decisions.sampled import SAMPLED
from tests.decisions.short import SHORT
from tests.decisions.softmax import SOFTMAX
from tests.decisions.strangers import STRANGERS

FAMILIES = {
    "add": ("avx2", "avx512", "cuda90"),
    "softmax": ("avx512", "cuda90"),
    "layer_norm": ("avx512", "cuda90"),
    "matmul": ("avx512", "amx", "cuda90"),
    "matvec": ("avx512",),
    "further": ("avx512", "amx", "cuda90"),
    "others": ("avx512", "cuda90"),
    "rows": ("avx512",),
    "strangers": ("avx512", "amx"),
    "generated": ("cuda90",),
    "examples": ("avx2", "avx512", "amx", "cuda90"),
}
CASES = [(family, target) for family, targets in FAMILIES.items() for target in targets]
_SPELLINGS = {
    "add": ADD, "softmax": SOFTMAX, "layer_norm": LAYER_NORM, "matmul": MATMUL + ROLES, "others": OTHERS,
    "further": FURTHER,
    "matvec": MATVEC, "rows": ROWS + SHORT + BAGS, "generated": GENERATED,
    "strangers": STRANGERS + PERSISTENT + SCALED_BLOCKS + OTHER_LOOPS + SAMPLED,
}  # fmt: skip


def kernels_of(family: str) -> list[Spelling]:
    """The kernels of a family."""
    return _SPELLINGS.get(family) or example_kernels()
