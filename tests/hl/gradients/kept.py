"""Random kernels whose gradients were wrong or refused once, as texts: the generator draws others meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from tests.hl.fuzz.programs import Program, made_of


@dataclass(frozen=True)
class Kept:
    """A kernel of the generator.

    Args:
        body: its statements.
        shape: of its matrix.
        k: its number.
        static: whether it is compiled for its sizes.
        turned: whether the second matrix lies transposed.
    """

    body: str
    shape: tuple[int, int]
    k: int
    static: bool = True
    turned: bool = False

    def program(self) -> Program:
        """The kernel, and arguments for it."""
        pairs = (
            "x.size(0) == y.size(0) == u.size(0) == out.size(0) == sums.size(0)",
            "x.size(1) == y.size(1) == w.size(0)",
        )
        lines = ["def kept(x, y, w, u, k, out, sums):", *(f"    assert {pair}" for pair in pairs)]
        return made_of("\n".join(lines) + self.body, "kept", 0, self.shape, self.k, self.static, self.turned)


KEPT = {
    "a product of nothing": Kept("""
    none, flag = x[:, :0], hl.constexpr(k > 2)
    for rows in hl.tile(x.size(0)):
        empty = torch.tanh(none[rows, :] * 2) + hl.zeros([rows, 0])
        total = empty.prod(-1) + u[rows]
        for columns in hl.tile(none.size(1)):
            total = total + none[rows, columns].sum(-1)
        sums[rows] = torch.tanh(total) if not flag else total * 0.5
        out[rows, :] = 2
""", (10, 32), 1, static=False),
    "exits of elements": Kept("""
    for row in hl.grid(x.size(0)):
        total, count = 0.0, 0
        for column in hl.grid(x.size(1)):
            if ((count != row or count > 1) and (row > 1 if x.size(1) != column else x.size(1) > 1)):
                count += 1
                continue
            few = (1 < x.size(1) <= k and not torch.sin(w[column])) and (count or row < 2)
            total = total + (torch.tanh(torch.sigmoid(w[column])) if few else 0.5)
            if (k if (x.size(1) > count or x.size(1) < 1) else k > 1):
                count += 1
                break
            total = total + (torch.tanh(y[row, column]) if (not (x.size(1) != 1) if row else x[row, column] > 1) else 3)
        sums[row] = total + count
""", (11, 30), 4),
    "a tile that is flattened for nothing": Kept("""
    for rows, columns in hl.tile(x.shape):
        v1 = y[rows - 1, columns] + 0 * x[rows, columns]
        v2 = torch.tanh((x[rows, columns] + y[rows, columns])) + 0 * x[rows, columns]
        v2 = v2 + torch.tanh((v1 + 1).transpose(0, 1).reshape(-1).amax(-1))
        out[rows, columns] = torch.tanh(torch.exp(--v1.abs()))
""", (2, 18), 5),
    "rows beyond a slice": Kept("""
    few, one = w[: 3], u[:1]
    for rows, columns in hl.tile(x.shape):
        below = u[rows.begin + 1] / (one[rows.index + 1][:, None].abs() + 1.0)
        least = torch.minimum(torch.minimum(u[rows.begin + 1], few[0]), below)
        out[rows, columns] = torch.tanh(least) + 0 * x[rows, columns]
""", (6, 25), 2, static=False, turned=True),
    "random numbers": Kept("""
    for rows, columns in hl.tile(x.shape):
        v1 = y[rows, columns] / (y[rows, columns].abs() + 1.0) + torch.minimum(y[rows, columns], u[rows][:, None])
        v2 = y[rows - 1, columns] + x[rows, columns] - torch.minimum(w[columns][None, :], y[rows - 1, columns])
        v1 = v1 + hl.rand([rows, columns], k)
        out[rows, columns] = torch.tanh((v1 * v2))
""", (1, 32), 5, static=False),
    "nothing in front of columns": Kept("""
    none, flag = x[:, :0], hl.constexpr(None)
    for rows in hl.tile(x.size(0)):
        empty = torch.tanh(none[rows, :] * 2) + hl.zeros([rows, 0])
        total = torch.cat([empty, y[rows, :]], 1).sum(-1) + u[rows]
        for columns in hl.tile(none.size(1)):
            total = total + none[rows, columns].sum(-1)
        sums[rows] = torch.tanh(total) if not flag else total * 0.5
        out[rows, :0] = empty
""", (4, 19), 2, turned=True),
}  # fmt: skip
