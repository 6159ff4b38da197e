"""More kinds of random kernels: one tensor by several names, loops after loops, two dims at once, functions, exits from
inner loops, scans and reductions by functions of the program, other types on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.hl.fuzz.programs import Writer

_ON_THE_WAY = (
    "{}.to(torch.float16).float()", "({} * 4).to(torch.int32).float()", "(({} * 8).to(torch.int64) // 3).float()",
    "(({} * 8).to(torch.int32) % 3).float()", "({} > 0.25).float()", "torch.where({} > 0, 1, 0).float()", "{}.sign()",
    "(({} > 0) & ({} < 1)).to(torch.int32).float()", "{}.clamp(-0.5, 0.75)", "{}.square().sqrt()",
    "({} * 8).to(torch.int16).bitwise_and(3).float()", "{}.to(torch.bfloat16).float()",
)  # fmt: skip


def _kept(w: Writer, value: str) -> str:
    """A value that has been of another type, or something that is coarse."""
    text = w.rng.choice(_ON_THE_WAY)
    return text.replace("{}", f"torch.tanh({value})") if w.rng.random() < 0.5 else f"torch.tanh({value})"


def names(w: Writer) -> None:
    """One tensor by several names: transposed, flat, cut, with gaps; what is stored by one name is read by another."""
    rng = w.rng
    w.line(1, "turned, low, again, upright = x.t(), x[1:], out, out.t()")
    w.line(1, rng.choice(("odd = y[:, ::2]", "odd = y[:, 1:]", "odd = y.t().t()", "odd = y.unsqueeze(0)[0]")))
    w.line(1, "flat = x.reshape(-1)" if rng.random() < 0.5 else "flat = x.contiguous().view(-1)")
    w.line(1, "for rows, columns in hl.tile(x.shape):")
    atoms = [
        "x[rows, columns]", "turned[columns, rows].t()", "low[rows - 1, columns]", "odd[rows, columns.index // 2]",
        "flat[rows.index[:, None] * x.size(1) + columns.index[None, :]]", "y[rows, columns]", "w[columns][None, :]",
        "turned[columns.index, rows.index].transpose(0, 1)",
    ]  # fmt: skip
    value = w.assign(2, f"{w.expression(atoms, 2)} + 0 * x[rows, columns]")
    other = w.rng.choice((value, f"{value}.t().t()", f"{value}[:, :, None].squeeze(-1)", f"{value}.unsqueeze(0)[0]"))
    w.line(2, f"{rng.choice(('out', 'again'))}[rows, columns] = {_kept(w, other)}")
    if rng.random() < 0.4:
        w.line(2, "again[rows, columns] = out[rows, columns] * 0.5 + x[rows, columns].tanh()")
    if rng.random() < 0.6:
        w.line(1, "for rows in hl.tile(x.size(0)):")
        w.line(2, rng.choice(("sums[rows] = again[rows, :].amax(-1)", "sums[rows] = upright[:, rows].sum(0).tanh()")))


def loops(w: Writer) -> None:
    """Loops after loops, which hand tensors on: kernels of one program that share buffers."""
    rng = w.rng
    w.line(1, "middle, few = torch.empty_like(x), torch.zeros_like(u)")
    w.line(1, "turned = middle.t()")
    w.line(1, "for rows, columns in hl.tile(x.shape):")
    atoms = ["x[rows, columns]", "y[rows, columns]", "w[columns][None, :]", "u[rows][:, None]"]
    # What is compared with the mean of a row must not be all of that row.
    w.line(2, f"middle[rows, columns] = torch.tanh({w.expression(atoms, 2)}) + 0.1 * x[rows, columns]")
    w.line(1, "for rows in hl.tile(x.size(0)):")
    reduced = rng.choice(("middle[rows, :].amax(-1)", "turned[:, rows].mean(0)", "middle[rows, :].cumsum(-1).amin(-1)"))
    w.line(2, f"few[rows] = {reduced}")
    if rng.random() < 0.5:
        w.line(2, "out[rows, :] = middle[rows, :] - few[rows][:, None]")
    w.line(1, "for rows, columns in hl.tile(x.shape):")
    atoms = [
        "middle[rows, columns]",
        "few[rows][:, None]",
        "out[rows, columns]",
        "x[rows, columns]",
        "middle[rows, columns - 1]",
    ]
    w.line(
        2, f"out[rows, columns] {rng.choice(('=', '+='))} torch.tanh({w.expression(atoms, 2)}) + 0 * x[rows, columns]"
    )
    if rng.random() < 0.5:
        w.line(2, "hl.atomic_add(sums, [rows], (out[rows, columns] * 0 + middle[rows, columns]).sum(-1) * 0.1)")
    else:
        w.line(1, "for rows in hl.tile(x.size(0)):")
        w.line(2, "sums[rows] = few[rows] + out[rows, :].sum(-1).tanh()")


_BOTH = (
    "{}.sum((1, 2)).tanh()", "{}.amax((1, 2))", "{}.mean((-1, -2))", "{}.sum(1).amax(-1)", "{}.amin(-1).mean(-1)",
    "torch.logsumexp({}, (1, 2)).tanh()", "{}.var((1, 2))", "{}.flatten(1).amax(-1)",
    "{}.sum((1, 2), keepdim=True).reshape(-1).tanh()",
    "{}.transpose(1, 2).sum((1, 2)).tanh()", "{}.any(-1).float().mean(-1)", "{}.prod(-1).sum(-1).tanh()",
)  # fmt: skip


def dims(w: Writer) -> None:
    """Tiles of three dims, of which two are reduced."""
    rng = w.rng
    count = rng.choice((1, 2, 3, 5))
    w.line(1, f"few = w[:{count}]" if w.columns >= 5 else "few = w[:1]")
    w.line(1, "for rows in hl.tile(x.size(0)):")
    atoms = ["x[rows, :]", "y[rows, :]", "u[rows][:, None]"]
    flat = w.assign(2, f"{w.expression(atoms, 2)} + 0 * x[rows, :]")
    cube = w.assign(2, f"torch.tanh({flat})[:, :, None] {rng.choice('*+')} few[:][None, None, :]")
    if rng.random() < 0.5:
        cube = w.assign(
            2, rng.choice((f"{cube}.softmax(1)", f"{cube}.softmax(-1)", f"{cube} - {cube}.mean((1, 2), keepdim=True)"))
        )
    w.line(2, f"sums[rows] = {rng.choice(_BOTH).format(cube)}")
    w.line(2, f"out[rows, :] = {rng.choice((f'{cube}.sum(-1)', f'{cube}.amax(-1)', f'{cube}[:, :, 0]'))}")


_ENDS = (
    "def end(v, rows, scale=0.5):\n    return v * scale",
    "end = lambda v, rows: torch.relu(v) + 0.125",
    "def end(v, rows):\n    for factor in (0.5, 2.0):\n        v = torch.tanh(v * factor)\n    return v",
    "def end(v, rows):\n    def inner(a, b):\n        return torch.maximum(a, -b)\n    return inner(v, v * 0.25)",
)


def functions(w: Writer) -> None:
    """A product of matrices, and functions around it: of the module, of the kernel, of the loop."""
    rng = w.rng
    w.lines.insert(0, rng.choice(_ENDS))
    if rng.random() < 0.5:
        w.line(1, "def mixed(a, b):")
        w.line(2, rng.choice(("return torch.tanh(a) - b", "return a * b + k", "return torch.where(a > b, a, u[0])")))
    else:
        w.line(1, "mixed = lambda a, b: torch.sigmoid(a) * b")
    w.line(1, "for rows, others in hl.tile([x.size(0), y.size(0)]):")
    w.line(2, "acc = hl.zeros([rows, others])")
    w.line(2, "for ks in hl.tile(x.size(1)):")
    left = rng.choice(("x[rows, ks]", "x[rows, ks] * w[ks][None, :]", "mixed(x[rows, ks], w[ks][None, :])"))
    added = (
        "acc = torch.addmm(acc, {0}, {1})",
        "acc = acc + {0} @ {1}",
        "acc += torch.matmul({0}, {1})",
        "acc = hl.dot({0}, {1}, acc=acc)",
    )
    w.line(3, rng.choice(added).format(left, "y[others, ks].t()"))
    if rng.random() < 0.4:
        read = (
            "acc = acc * 0.5",
            "acc = torch.maximum(acc, x[rows, ks].sum(-1)[:, None])",
            "acc = acc.relu()",
            "acc = torch.tanh(acc)",
        )
        w.line(3, rng.choice(read))
    w.line(2, "acc = end(acc, rows)")
    if rng.random() < 0.5:
        w.line(2, "last = lambda v: mixed(v, u[others][None, :])")
        w.line(2, "acc = last(acc)")
    w.line(2, "hl.atomic_add(sums, [rows], torch.tanh(acc * 0.1).sum(-1))")


def exits(w: Writer) -> None:
    """Inner loops that are left or cut short, within each other, under conditions of values, numbers and tiles."""
    rng = w.rng
    w.line(1, "for rows in hl.tile(x.size(0)):")
    w.line(2, "total, most = hl.zeros([rows]), u[rows] * 0.5")
    inner = rng.choice(
        ("hl.tile(x.size(1))", "reversed(hl.tile(x.size(1)))", "hl.tile(1, x.size(1))", "hl.tile(k, x.size(1))")
    )
    w.line(2, f"for columns in {inner}:")
    atoms = ["x[rows, columns]", "y[rows, columns]", "w[columns][None, :]", "total[:, None]"]
    if rng.random() < 0.5:
        w.line(3, f"if {rng.choice(('columns.begin > k * 4', 'u[0] > 0.5', 'k == 2 and columns.begin > 0'))}:")
        w.line(4, rng.choice(("break", "continue")))
    value = w.assign(3, f"torch.tanh({w.expression(atoms, 2)}) + 0 * x[rows, columns]")
    if rng.random() < 0.5:
        w.line(3, f"if {rng.choice(('k > 2', 'w[0] > 0', 'columns.begin == 0', 'rows.begin > 0'))}:")
        w.line(4, f"total = total + {value}.sum(-1)")
        if rng.random() < 0.6:
            w.line(3, "else:")
            w.line(4, f"total, most = most, total + {value}.amax(-1)")
    else:
        w.line(3, f"total = (total + {value}.sum(-1)).tanh()")
    if rng.random() < 0.4:
        w.line(3, f"for step in {rng.choice(('range(2)', 'hl.static_range(2)', 'hl.grid(k)'))}:")
        w.line(4, "most = torch.maximum(most, total) * 0.5 + step")
    else:
        w.line(3, f"most = torch.maximum(most, {value}.amax(-1))")
    if rng.random() < 0.5:
        w.line(3, f"out[rows, columns] = {value} + most[:, None]")
    w.line(2, "sums[rows] = torch.tanh(total) + most")


_COMBINED = (
    ("def combined(a, b):\n    return a + b", "0.0"),
    ("def combined(a, b):\n    return torch.maximum(a, b)", "float('-inf')"),
    ("def combined(a, b):\n    return torch.minimum(a, b)", "float('inf')"),
)


_LARGER = """def larger(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return torch.where(first, a, b), torch.where(first, i, j)"""


def combinations(w: Writer) -> None:
    """Scans and reductions by functions of the program, of one value or of two, from either end."""
    rng = w.rng
    function, neutral = rng.choice(_COMBINED)
    w.lines.insert(0, function)
    w.lines.insert(0, _LARGER)
    w.line(1, "for rows in hl.tile(x.size(0)):")
    atoms = ["x[rows, :]", "y[rows, :]", "w[None, :]", "u[rows][:, None].expand(x[rows, :].shape)"]
    value = w.assign(2, f"torch.tanh({w.expression(atoms, 2)}) + 0 * x[rows, :]")
    reverse = rng.choice(("", ", reverse=True"))
    scans = (
        f"hl.associative_scan(combined, {value}, 1{reverse})",
        f"hl.cumsum({value}, 1{reverse})",
        f"{value}.cummax(-1).values",
    )
    w.line(2, f"out[rows, :] = {rng.choice(scans)}")
    if rng.random() < 0.5:
        w.line(2, f"sums[rows] = hl.reduce(combined, {value}, 1, other={neutral})")
    else:
        place = f"torch.zeros_like({value}) + hl.arange(x.size(1))[None, :]"
        w.line(2, f"best, where = hl.reduce(larger, ({value}, {place}), 1, other=(-9.0, 0.0))")
        w.line(2, "sums[rows] = best + where * 0.01")


KINDS: tuple[Callable[[Writer], None], ...] = (names, loops, dims, functions, exits, combinations)
