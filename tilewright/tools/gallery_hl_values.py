"""Mistakes of docs/hl_errors.md with shapes, types and values."""

from __future__ import annotations

from tilewright.tools.error_page import Case

CASES = (
    Case(
        "Axes that do not broadcast",
        """
        @hl.kernel
        def kernel(x, y):
            out = torch.empty_like(y)
            for tile_m, tile_n in hl.tile(y.size()):
                out[tile_m, tile_n] = y[tile_m, tile_n] + x[tile_m]
            return out

        kernel(x, y)
        """,
        "An axis of tiles is told from another one even where both have one size.",
    ),
    Case(
        "A tile stored the wrong way round",
        """
        @hl.kernel
        def kernel(y):
            out = torch.empty_like(y)
            for tile_m, tile_n in hl.tile(y.size()):
                out[tile_m, tile_n] = y[tile_m, tile_n].T
            return out

        kernel(y)
        """,
    ),
    Case(
        "Too many subscripts",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[tile, :]
            return out

        kernel(x)
        """,
    ),
    Case(
        "A subscript that is no index",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[x[tile]]
            return out

        kernel(x)
        """,
    ),
    Case(
        "A mask as subscript",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[x[tile] > 0]
            return out

        kernel(x)
        """,
    ),
    Case(
        "A whole tensor of the host in a loop",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[tile] + x
            return out

        kernel(x)
        """,
    ),
    Case(
        "A product of batches that differ",
        """
        @hl.kernel
        def kernel(z):
            out = torch.empty_like(z)
            for tile in hl.tile(z.size(0)):
                out[tile, :, :] = torch.bmm(z[tile, :, :], z[0:3, :, :])
            return out

        kernel(torch.randn(8, 4, 4))
        """,
    ),
    Case(
        "A size used as a number",
        """
        import math

        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[tile] * math.log(tile.begin + 1)
            return out

        kernel(x)
        """,
    ),
    Case(
        "A size that C code sees",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[tile] / x[tile].untyped_storage().nbytes()
            return out

        kernel(x)
        """,
        "The body is run on samples, twice with other sizes: what depends on the size of a sample is found.",
    ),
    Case(
        "A value of a tile on the host",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                total = x[tile].sum()
                out[tile] = total
            return total

        kernel(x)
        """,
    ),
    Case(
        "A variable of the host assigned in a loop",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                x = out[tile] * 2
                out[tile] = x
            return out

        kernel(x)
        """,
    ),
    Case(
        "A value of a tensor that the host needs",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            if x.sum() > 0:
                for tile in hl.tile(x.size(0)):
                    out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "A number from the elements of a tile",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[tile].sum().item()
            return out

        kernel(x)
        """,
    ),
    Case(
        "A branch for every element",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                if x[tile] > 0:
                    out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "A variable of one branch",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for row in hl.grid(x.size(0)):
                if x[row] > 0:
                    y = x[row] * 2
                out[row] = y
            return out

        kernel(x)
        """,
    ),
    Case(
        "A branch that gives two types",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for row in hl.grid(x.size(0)):
                y = x[row]
                if y > 0:
                    y = y.to(torch.int32)
                out[row] = y
            return out

        kernel(x)
        """,
    ),
    Case(
        "A branch that gives two kinds of things",
        """
        @hl.kernel
        def kernel(x):
            for row in hl.grid(x.size(0)):
                factor = "none"
                if x[row] > 0:
                    factor = 2.0
                x[row] = x[row] * factor

        kernel(x)
        """,
    ),
    Case(
        "A type that changes in a loop",
        """
        @hl.kernel
        def kernel(x, y):
            out = torch.empty_like(x)
            for tile_m in hl.tile(y.size(0)):
                total = hl.zeros([tile_m], dtype=torch.int32)
                for tile_n in hl.tile(y.size(1)):
                    total = total + y[tile_m, tile_n].sum(1)
                out[tile_m] = total
            return out

        kernel(x, y)
        """,
    ),
    Case(
        "A part of a tile assigned",
        """
        @hl.kernel
        def kernel(y):
            out = torch.empty_like(y)
            for tile in hl.tile(y.size(0)):
                row = y[tile, :]
                row[:, tile.id] = 1
                out[tile, :] = row
            return out

        kernel(y)
        """,
        "What is assigned to is said by constants, or by a mask of the tile's shape.",
    ),
    Case(
        "A number read from a tensor again and again",
        """
        @hl.kernel
        def kernel(x, counts):
            total = 0
            for at in range(2):
                total += counts[at].item()
            for tile in hl.tile(total):
                x[tile] = 0

        kernel(x, torch.tensor([2, 3]))
        """,
        "`n = counts[0].item()` in a statement of its own works: `n` is an argument of the compiled kernel.",
    ),
    Case(
        "Offsets beyond the type of indices",
        """
        @hl.kernel(index_dtype=torch.int32)
        def kernel(x):
            for tile in hl.tile(x.size(0)):
                x[tile, 0] = 0

        kernel(torch.empty(2**31 + 4, dtype=torch.int8).as_strided((2, 4), (2**31, 1)))
        """,
        "Without the setting, offsets have 64 bits where a tensor needs them.",
    ),
    Case(
        "Memory changed under a view",
        """
        @hl.kernel
        def kernel(y):
            out = torch.empty_like(y)
            for tile in hl.tile(y.size(0)):
                row = y[tile, :]
                flat = row.view(-1)
                flat += 1
                out[tile, :] = row
            return out

        kernel(y)
        """,
    ),
    Case(
        "An operation that tiles do not have",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = torch.nonzero(x[tile])
            return out

        kernel(x)
        """,
    ),
    Case(
        "An operation that nobody knows",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = torch.special.airy_ai(x[tile])
            return out

        kernel(x)
        """,
    ),
    Case(
        "A dimension that is not there",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[tile].sum(1)
            return out

        kernel(x)
        """,
    ),
    Case(
        "A reduction by a function over a dimension that is not there",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = hl.reduce(torch.maximum, x[tile], 1)
            return out

        kernel(x)
        """,
    ),
    Case(
        "A combine function that uses a tile",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                total = x[tile].sum()
                out[tile] = hl.associative_scan(lambda a, b: a + b * total, x[tile], 0)
            return out

        kernel(x)
        """,
    ),
    Case(
        "hl.split of something else than a pair",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                low, high = hl.split(x[tile])
                out[tile] = low
            return out

        kernel(x)
        """,
    ),
    Case(
        "An atomic update of a tile",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                part = x[tile]
                hl.atomic_add(part, [tile], 1)
                out[tile] = part
            return out

        kernel(x)
        """,
    ),
)
