"""Block functions that random kernels call; a case file carries the text of those that it uses."""

from __future__ import annotations

HELPERS = {
    "take_larger": """
@tilewright.jit
def take_larger(a, b):
    return tl.where(a > b, a, b)
""",
    "mix_bits": """
@tilewright.jit
def mix_bits(a, b):
    return a ^ b
""",
    "both_sums": """
@tilewright.jit
def both_sums(a, b, c, d):
    return a + c, b ^ d
""",
    "smallest_pair": """
@tilewright.jit
def smallest_pair(value1, index1, value2, index2):
    first = (value1 < value2) | ((value1 == value2) & (index1 < index2))
    return tl.where(first, value1, value2), tl.where(first, index1, index2)
""",
    "recurrence": """
@tilewright.jit
def recurrence(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2
""",
    "Affine": """
@tl.aggregate
class Affine:
    scale: tl.tensor
    shift: tl.tensor
    factor: tl.constexpr

    @tilewright.jit
    def at(self, x):
        return x * self.scale + self.shift * self.factor

    @tilewright.jit
    def turned(self, x):
        return Affine(self.shift, self.at(x) ^ self.scale, self.factor)
""",
    "choose_early": """
@tilewright.jit
def choose_early(n, a, b):
    if n > 3:
        return a
    if n < 0:
        return a + b
    return b
""",
    "scalar_steps": """
@tilewright.jit(noinline=True)
def scalar_steps(n, m):
    total = n
    for i in range(0, 3):
        total = total * 3 + m
    return total
""",
}
