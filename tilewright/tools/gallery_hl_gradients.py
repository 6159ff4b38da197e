"""Mistakes of docs/hl_errors.md with gradients."""

from __future__ import annotations

from tilewright.tools.error_page import Case

CASES = (
    Case(
        "A gradient that needs every pass of a loop",
        """
        @hl.kernel
        def kernel(y):
            out = torch.empty([y.size(0)])
            for rows in hl.tile(y.size(0)):
                state, lengths = hl.zeros([rows]), y[rows, 0].abs().to(torch.int32)
                for columns in hl.jagged_tile(lengths):
                    state = 0.5 * state + y[rows, columns].sum(-1)
                out[rows] = state
            return out

        kernel(y.requires_grad_())
        """,
        "The passes go back from the last to the first, and what each began with is kept: their number must be known. "
        "The error comes with the call that wants a gradient, not in `.backward()`.",
    ),
    Case(
        "A gradient through a running maximum",
        """
        @hl.kernel
        def kernel(y):
            out = torch.empty([y.size(0)])
            for rows in hl.tile(y.size(0)):
                largest, lengths = hl.full([rows], float("-inf")), y[rows, 0].abs().to(torch.int32)
                for columns in hl.jagged_tile(lengths):
                    largest = torch.maximum(largest, y[rows, columns].amax(-1))
                out[rows] = largest
            return out

        kernel(y.requires_grad_())
        """,
    ),
    Case(
        "A gradient of something that has none",
        """
        @hl.kernel
        def kernel(y):
            out = torch.empty([y.size(0)])
            for rows in hl.tile(y.size(0)):
                first = y[rows, 0]
                out[rows] = hl.inline_triton("{0} + 1.0", args=(first,), output_like=first)
            return out

        kernel(y.requires_grad_())
        """,
    ),
    Case(
        "The gradient of a gradient",
        """
        def grown(left, right):
            return left + right + left * right

        @hl.kernel
        def kernel(y):
            out = torch.empty_like(y)
            for rows in hl.tile(y.size(0)):
                out[rows, :] = hl.associative_scan(grown, y[rows, :], 1)
            return out

        y.requires_grad_()
        (grad,) = torch.autograd.grad(kernel(y).square().sum(), y, create_graph=True)
        grad.square().sum().backward()
        """,
    ),
)
