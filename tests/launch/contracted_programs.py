"""Random programs of sums and products, with branches and loops of run time and of compile time, from a seed."""

from __future__ import annotations

import random

HEAD = '''"""Made by tests/launch/contracted_programs.py from seed {seed}."""

import tilewright
import tilewright.language as tl


@tilewright.jit
def scaled(a, b, TWICE: tl.constexpr):
    if TWICE:
        return a * b
    return a * b - b


@tilewright.jit
def chosen(a, b, n):
    if n > 2:
        return a * b
    return b * b


@tilewright.jit
def kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x_ptr + i)
    b = tl.load(y_ptr + i)
    c = tl.load(z_ptr + i)
    d = a * b
'''
OUTPUTS = ("a", "b", "c", "d")


def program(seed: int, statements: int = 10) -> str:
    """Text of a module with a `kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, N)` that stores four tiles of N elements."""
    rng = random.Random(seed)
    lines = [line for _ in range(statements) for line in _statement(rng, "    ", depth=2)]
    stores = [f"    tl.store(out_ptr + {k} * N + i, {name})" for k, name in enumerate(OUTPUTS)]
    return HEAD.format(seed=seed) + "\n".join([*lines, *stores, ""])


def _statement(rng: random.Random, indent: str, depth: int) -> list[str]:
    kind = rng.random()
    if depth == 0 or kind < 0.6:
        return [f"{indent}{rng.choice(OUTPUTS)} = {_value(rng)}"]
    inner = [line for _ in range(rng.randint(1, 3)) for line in _statement(rng, indent + "    ", depth - 1)]
    if kind < 0.7:
        return [f"{indent}if n > {rng.randint(0, 5)}:", *inner]
    if kind < 0.76:
        other = _statement(rng, indent + "    ", 0)
        return [f"{indent}if n > {rng.randint(0, 5)}:", *inner, f"{indent}else:", *other]
    if kind < 0.82:
        return [f"{indent}if N > {rng.choice((1, 9999))}:", *inner]
    if kind < 0.92:
        loop = rng.choice(("range(n)", "range(2)", "tl.static_range(2)", "range(n, 4)"))
        return [f"{indent}for _ in {loop}:", *inner]
    counter = f"k{len(indent)}"
    return [f"{indent}{counter} = 0", f"{indent}while {counter} < n:", *inner, f"{indent}    {counter} += 1"]


def _value(rng: random.Random) -> str:
    """An expression whose values stay of the size of its operands."""
    x, y, z, w = (rng.choice(OUTPUTS) for _ in range(4))
    return rng.choice(
        (
            f"{x} * {y} + {z}",
            f"{x} * {y} - {z}",
            f"{z} - {x} * {y}",
            f"{x} * {y} - {z} * {w}",
            f"({x} + {y}) * 0.5",
            f"{x} * {y}",
            f"{x} + {y}",
            f"{x} - {y}",
            f"-({x} * {y}) + {z}",
            f"tl.where({x} > 0, {y} * {z}, {w}) + {z}",
            f"scaled({x}, {y}, {rng.choice(('True', 'False'))}) + {z}",
            f"chosen({x}, {y}, n) - {z}",
            f"({x} * {y} if n > 1 else {w}) + {z}",
            f"tl.broadcast_to({x} * {y}, [N]) + {z}",
            f"tl.reshape({x} * {y}, [N]) - {z}",
            f"tl.minimum({x} * {y} + {z}, 2.0)",
            f"tl.clamp({x}, -1.0, 1.0)",
            f"tl.fma({x}, {y}, {z}) + {x} * {w}",
        )
    )
