"""The mistakes of docs/hl_errors.md."""

from __future__ import annotations

from tilewright.tools.error_page import Case, Page

_HEADER = """\
import torch
from tilewright import hl

x, y = torch.randn(20), torch.randn(20, 6)
"""
_INTRODUCTION = """\
# What errors of hl look like

Written by `make docs`: every kernel below is run, and what it raises is shown under it. Each starts with these lines:

```python
{header}```

Every error of `hl` is in `hl.exc` under the name that users of Helion know, and is a `tilewright.TilewrightError`. It
points to the line of the kernel, names axes instead of sizes, and says what to write instead.
"""

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
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                if tile.begin:
                    out[tile] = x[tile]
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
                out[tile] = x[tile] / len(x[tile].tolist())
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
                row[:, 0] = 1
                out[tile, :] = row
            return out

        kernel(y)
        """,
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
    Case(
        "A tile used as a number",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[tile] * tile
            return out

        kernel(x)
        """,
    ),
    Case(
        "A tile as the bound of a loop",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                for inner in hl.tile(tile):
                    out[inner] = x[inner]
            return out

        kernel(x)
        """,
    ),
    Case(
        "Begin and end of different kinds",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile([0], x.size(0)):
                out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "A range that begins behind its end",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(9, 3):
                out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "Two loop variables for one range",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for a, b in hl.tile(x.size(0)):
                out[a] = x[b]
            return out

        kernel(x)
        """,
    ),
    Case(
        "hl.tile outside of a for",
        """
        @hl.kernel
        def kernel(x):
            tiles = list(hl.tile(x.size(0)))
            return tiles

        kernel(x)
        """,
    ),
    Case(
        "A jagged tile as the outermost loop",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.jagged_tile(x):
                out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "A loop over a tensor",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                for value in x[tile]:
                    out[tile] = value
            return out

        kernel(x)
        """,
    ),
    Case(
        "`else` of a loop over tiles",
        """
        @hl.kernel
        def kernel(x):
            for tile in hl.tile(x.size(0)):
                x[tile] = 0
            else:
                print("done")

        kernel(x)
        """,
    ),
    Case(
        "A loop over tiles inside a loop of the host",
        """
        @hl.kernel
        def kernel(x):
            for _ in range(3):
                for tile in hl.tile(x.size(0)):
                    x[tile] += 1

        kernel(x)
        """,
    ),
    Case(
        "A loop in a helper function",
        """
        def clear(x):
            for tile in hl.tile(x.size(0)):
                x[tile] = 0

        @hl.kernel
        def kernel(x):
            for tile in hl.tile(x.size(0)):
                clear(x)

        kernel(x)
        """,
    ),
    Case(
        "A kernel called inside a kernel",
        """
        @hl.kernel
        def inner(x):
            for tile in hl.tile(x.size(0)):
                x[tile] = 0

        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = inner(x[tile])
            return out

        kernel(x)
        """,
    ),
    Case(
        "Leaving a loop",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for row in hl.grid(x.size(0)):
                if x[row] > 0:
                    break
                out[row] = x[row]
            return out

        kernel(x)
        """,
        "`continue` works: what is behind it becomes the other branch.",
    ),
    Case(
        "return inside a loop",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                return x[tile]

        kernel(x)
        """,
    ),
    Case(
        "A statement of the host in a loop",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                with torch.no_grad():
                    out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "A loop without effect",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                y = x[tile] * 2
            return out

        kernel(x)
        """,
    ),
    Case(
        "No loop",
        """
        @hl.kernel
        def kernel(x):
            return x * 2

        kernel(x)
        """,
    ),
    Case(
        "A generator as kernel",
        """
        @hl.kernel
        def kernel(x):
            yield x

        kernel(x)
        """,
    ),
    Case(
        "Parameters by name only",
        """
        @hl.kernel
        def kernel(x, *, n):
            return x

        kernel(x, n=3)
        """,
    ),
    Case(
        "A kernel without a text",
        """
        kernel = hl.kernel(lambda x: x)
        """,
    ),
    Case(
        "No tensor",
        """
        @hl.kernel
        def kernel(n):
            for tile in hl.tile(n):
                pass

        kernel(3)
        """,
    ),
    Case(
        "A variable that is not there",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[tile] + bias
            return out

        kernel(x)
        """,
    ),
    Case(
        "Something that cannot be stored",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = None
            return out

        kernel(x)
        """,
    ),
    Case(
        "A function of tiles outside of a kernel",
        """
        hl.zeros([4])
        """,
    ),
    Case(
        "A function of tiles on the host",
        """
        @hl.kernel
        def kernel(x):
            return hl.zeros([4])

        kernel(x)
        """,
    ),
    Case(
        "hl.specialize in a loop",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                n = hl.specialize(x.size(0))
                out[tile] = n
            return out

        kernel(x)
        """,
    ),
    Case(
        "hl.specialize of something else than a size",
        """
        @hl.kernel
        def kernel(x):
            n = hl.specialize("n")
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "A barrier in a loop",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                hl.barrier()
                out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "hl.pdl_wait in a loop",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                hl.pdl_wait()
                out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "A breakpoint in compiled code",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                breakpoint()
                out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "Inline text with a name that is no argument",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = hl.inline_triton("{x} + {y}", {"x": x[tile]}, x[tile])
            return out

        kernel(x)
        """,
    ),
    Case(
        "Addresses of another type",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                stack = hl.stacktensor_like(x, x[tile])
                out[tile] = stack[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "Addresses that are a whole tensor",
        """
        @hl.kernel
        def kernel(x):
            pointers = torch.empty([4], dtype=torch.uint64)
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                stack = hl.stacktensor_like(x, pointers)
                out[tile] = stack[tile].sum(0)
            return out

        kernel(x)
        """,
    ),
    Case(
        "Tensors like a tile",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                stack = hl.stacktensor_like(x[tile], tile.index.to(torch.int64))
                out[tile] = stack[tile]
            return out

        kernel(x)
        """,
    ),
    Case(
        "Stacked tensors on the host",
        """
        @hl.kernel
        def kernel(x):
            stack = hl.stacktensor_like(x, x)
            return stack

        kernel(x)
        """,
    ),
    Case(
        "Random numbers in a while",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for row in hl.grid(x.size(0)):
                total = x[row]
                while total < 3:
                    total = total + torch.rand_like(total)
                out[row] = total
            return out

        kernel(x)
        """,
    ),
    Case(
        "A copy to another device inside a kernel",
        """
        hl.make_async_remote_copy(x, [0], 1)
        """,
    ),
    Case(
        "A configuration for another kernel",
        """
        @hl.kernel(config=hl.Config(block_sizes=[16, 16]))
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = x[tile]
            return out

        kernel(x)
        """,
    ),
)

PAGE = Page("hl_errors.md", _HEADER, _INTRODUCTION, CASES)
