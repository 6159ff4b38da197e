"""Mistakes of docs/hl_errors.md with loops, statements and functions of the language."""

from __future__ import annotations

from tilewright.tools.error_page import Case

CASES = (
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
        "Nested loops with one registered block size",
        """
        @hl.kernel
        def kernel(y):
            block = hl.register_block_size(32)
            out = torch.empty_like(y)
            for a in hl.tile(y.size(0), block_size=block):
                for b in hl.tile(y.size(1), block_size=block):
                    out[a, b] = y[a, b]
            return out

        kernel(y)
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
        "Inner loops can be left: the passes that remain do nothing. `continue` works everywhere.",
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
        "A function that is not there",
        """
        @hl.kernel
        def kernel(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile, :] = torch.sofmax(x[tile, :], -1)
            return out

        kernel(x)
        """,
    ),
    Case(
        "A list that a loop adds to",
        """
        @hl.kernel
        def kernel(x):
            parts = []
            for tile in hl.tile(x.size(0)):
                parts.append(x[tile] * 2)
            return torch.cat(parts)

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
