"""What newcomers write in the place of hl: each is an error at its line, with what to write instead."""

import math

import pytest
import torch

import tilewright.language as tl
from tilewright import hl

seen = []
counted = {"tiles": 0}
total_of_all = 0


def endless(x):
    return endless(x) + 1


@hl.kernel
def whole_tensor(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x):  # here
        out[tile] = x[tile]
    return out


@hl.kernel
def function_of_tl(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = tl.exp(x[tile])  # here
    return out


@hl.kernel
def number_of_the_host(x):
    total = 0.0
    for tile in hl.tile(x.size(0)):
        total += x[tile].sum()  # here
    return total


@hl.kernel
def list_of_the_module(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
        seen.append(x[tile])  # here
    return out


@hl.kernel
def dictionary_of_the_module(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        counted["tiles"] += 1  # here
        out[tile] = x[tile]
    return out


@hl.kernel
def list_of_the_host(x):
    parts = []
    for tile in hl.tile(x.size(0)):
        parts.append(x[tile])  # here
    return torch.cat(parts)


@hl.kernel
def misspelt_function(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.sigmiod(x[tile])  # here
    return out


@hl.kernel
def misspelt_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tiles(x.size(0)):  # here
        out[tile] = x[tile]
    return out


@hl.kernel
def misspelt_method(x):
    out = torch.empty_liek(x)  # here
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


@hl.kernel
def dimension_lost(x):
    table = x.view(5, 20)
    out = torch.empty_like(table)
    for tile in hl.tile(table.size(0)):
        out[tile, :] = table[tile, :] - table[tile, :].mean(-1)  # here
    return out


@hl.kernel
def recursive(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = endless(x[tile])  # here
    return out


@hl.kernel
def formatted(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        print(f"values {x[tile]}")  # here
        out[tile] = x[tile]
    return out


@hl.kernel
def elements_in_turn(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        for i in range(tile):  # here
            out[i] = x[i]
    return out


@hl.kernel
def sliced(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile.begin : tile.end]  # here
    return out


@hl.kernel
def decided(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if x[tile] > 0:  # here
            out[tile] = x[tile]
    return out


@hl.kernel
def swapped(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.where(x[tile], x[tile] > 0, 0)  # here
    return out


@hl.kernel
def complex_numbers(x):
    z = torch.complex(x, x)
    out = torch.empty_like(z)
    for tile in hl.tile(z.size(0)):
        out[tile] = z[tile] * 2  # here
    return out


@hl.kernel
def product_of_integers(x):
    table = x.view(5, 20).to(torch.int32)
    out = torch.empty([5, 5], dtype=torch.int32)
    for rows, columns in hl.tile([5, 5]):
        out[rows, columns] = table[rows, :] @ table[columns, :].T  # here
    return out


@hl.kernel
def expanded(x):
    out = torch.zeros(1).expand(100)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]  # here
    return out


@hl.kernel
def right(x, factor: float):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


MISTAKES = [
    (whole_tensor, "IncorrectTileUsage", "hl.tile(x.size(0))"),
    (function_of_tl, "TorchOpTracingError", "torch.exp(x) for tl.exp(x)"),
    (number_of_the_host, "CannotModifyHostVariableOnDevice", "hl.atomic_add"),
    (list_of_the_module, "CannotModifyHostVariableOnDevice", "out[tile] = ..."),
    (dictionary_of_the_module, "CannotModifyHostVariableOnDevice", "out[tile] = ..."),
    (list_of_the_host, "CannotModifyHostVariableOnDevice", "out[tile] = ..."),
    (misspelt_function, "UndefinedAttribute", "did you mean sigmoid?"),
    (misspelt_loop, "UndefinedAttribute", "did you mean tile?"),
    (misspelt_method, "UndefinedAttribute", "did you mean empty_like?"),
    (dimension_lost, "TorchOpTracingError", "keepdim=True"),
    (recursive, "TorchOpTracingError", "a function calls itself"),
    (formatted, "LeakedSample", "print('x', x)"),
    (elements_in_turn, "TileOfTile", "x[tile]"),
    (sliced, "InvalidIndexingType", "x[tile]"),
    (decided, "ControlFlowTensorMismatch", "torch.where"),
    (complex_numbers, "UnsupportedOperation", "torch.view_as_real(x)"),
    (product_of_integers, "UnsupportedOperation", "a.to(torch.float32)"),
    (expanded, "InvalidAPIUsage", "out.clone()"),
    (swapped, "TorchOpTracingError", "torch.where(x > 0, x, 0)"),
]


@pytest.mark.parametrize(("kernel", "kind", "instead"), MISTAKES, ids=lambda item: getattr(item, "name", ""))
def test_a_mistake(kernel, kind, instead):
    with pytest.raises(getattr(hl.exc, kind)) as caught:
        kernel(torch.randn(100))
    place = caught.value.location
    assert place.source_line().endswith("# here") and place.col > 0
    assert instead in caught.value.hint


def test_what_a_trace_has_put_into_a_container_is_taken_out_again():
    for kernel in (list_of_the_module, dictionary_of_the_module):
        with pytest.raises(hl.exc.CannotModifyHostVariableOnDevice):
            kernel(torch.randn(100))
    assert seen == [] and counted == {"tiles": 0}


def test_calls():
    x = torch.randn(10)
    with pytest.raises(hl.exc.InvalidAPIUsage, match="launched with a grid") as caught:
        right[(4,)](x, 2.0)
    assert "right(...)" in caught.value.hint
    with pytest.raises(TypeError):
        iter(right)
    with pytest.raises(TypeError, match="`fcator` is no parameter"):
        right(x, fcator=math.pi)
    with pytest.raises(hl.exc.NoTensorArgs) as caught:
        right([1.0, 2.0], 2.0)
    assert "torch.tensor(x)" in caught.value.hint
    with pytest.raises(hl.exc.NotInsideKernel) as caught:
        hl.zeros([4])
    assert "@tilewright.jit" in caught.value.hint


def test_a_global_variable():
    with pytest.raises(hl.exc.StatementNotSupported, match="`global` in a kernel") as caught:

        @hl.kernel
        def kernel(x):
            global total_of_all
            for tile in hl.tile(x.size(0)):
                total_of_all += 1
                x[tile] = 0

    assert "return what is new" in caught.value.hint and "global total_of_all" in caught.value.location.source_line()


def kernel_of(operation):
    """A kernel that puts what `operation` makes of a row into its place."""

    @hl.kernel
    def rows(y):
        out = torch.empty_like(y)
        for tile in hl.tile(y.size(0)):
            out[tile, :] = operation(y[tile, :])  # here
        return out

    return rows


@pytest.mark.parametrize(
    "operation",
    [
        lambda row: torch.nn.functional.layer_norm(row, [5]),
        lambda row: torch.nn.functional.layer_norm(row, [3, 6]),
        lambda row: row + row.topk(7, 1).values[:, :1],
        lambda row: row + row.kthvalue(7, 1).values[:, None],
        lambda row: row + row.select(1, 9)[:, None],
        lambda row: row + torch.linalg.vector_norm(row, dim=4),
        lambda row: row.clamp(),
    ],
    ids=["layer_norm", "layer_norm of more dimensions", "topk", "kthvalue", "select", "vector_norm", "clamp"],
)
def test_what_pytorch_refuses_is_refused(operation):
    """Operations that are written with others were taken as they are: a layer norm of 5 of 6 columns had a result."""
    y = torch.randn(8, 6)
    with pytest.raises((RuntimeError, IndexError)):
        operation(y)
    with pytest.raises(hl.exc.Error) as caught:
        kernel_of(operation)(y)
    assert caught.value.location is not None and "# here" in caught.value.location.source_line()


@hl.kernel
def beyond_its_dimensions(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(1)):  # here
        out[tile] = x[tile]
    return out


@hl.kernel
def more_subscripts_than_dimensions(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        first = x[0]
        out[tile] = x[tile] * first[:, None]  # here
    return out


@hl.kernel
def sum_from_a_number(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        total = 0
        for columns in hl.tile(x.size(0)):
            total += x[rows][:, None] * x[columns]  # here
        out[rows] = total
    return out


@hl.kernel
def shape_without_brackets(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.zeros(tile, tile)  # here
    return out


@hl.kernel
def loop_over_a_tile(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        for i in tile:  # here
            out[i] = x[i]
    return out


@hl.kernel
def block_of_a_fraction(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0), block_size=2.5):  # here
        out[tile] = x[tile]
    return out


@hl.kernel
def misspelt_keyword(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0), block_sizes=[4]):  # here
        out[tile] = x[tile]
    return out


@pytest.mark.parametrize(
    ("kernel", "kind", "instead"),
    [
        (beyond_its_dimensions, hl.exc.RankMismatch, "counted from 0"),
        (more_subscripts_than_dimensions, hl.exc.RankMismatch, "remove subscripts"),
        (sum_from_a_number, hl.exc.ShapeMismatch, "hl.zeros("),
        (shape_without_brackets, hl.exc.InvalidAPIUsage, "one list"),
        (loop_over_a_tile, hl.exc.TorchOpTracingError, "hl.grid"),
        (block_of_a_fraction, hl.exc.IncorrectTileUsage, "positive integers"),
        (misspelt_keyword, hl.exc.InvalidAPIUsage, "block_size"),
    ],
)
def test_a_mistake_of_a_researcher(kernel, kind, instead):
    with pytest.raises(kind) as caught:
        kernel(torch.randn(20))
    assert instead in (caught.value.hint or "") and "# here" in caught.value.location.source_line()
