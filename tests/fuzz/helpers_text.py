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
    "swapped": """
@tilewright.jit
def swapped(pair):
    return pair[1], pair[0]
""",
    "keep_last": """
@tilewright.jit
def keep_last(a, b):
    return b
""",
    "either_bit": """
@tilewright.jit
def either_bit(a, b):
    return a | b
""",
    "by_segments": """
@tilewright.jit
def by_segments(flag1, value1, flag2, value2):
    return flag1 | flag2, tl.where(flag2 != 0, value2, value1 + value2)
""",
    "three_of_each": """
@tilewright.jit
def three_of_each(a1, b1, c1, a2, b2, c2):
    return tl.minimum(a1, a2), tl.maximum(b1, b2), c1 + c2
""",
    "counted_down": """
@tilewright.jit
def counted_down(x, y):
    total = x
    steps = y & 3
    while steps > 0:
        if total % 2 == 0:
            total = total // 2
        else:
            total = total + y
        steps -= 1
    return total
""",
}
