"""The laws of the algebra of layouts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.layouts.strategies import layouts
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout, log2
from tilewright.layouts.picture import owners, picture, points


def table(layout):
    """(inputs, outputs) of every point, as sorted tuples: the meaning of a layout, dims unordered."""
    return {tuple(sorted(i.items())): tuple(sorted(o.items())) for i, o in points(layout)}


@given(layouts())
def test_linear(layout):
    assert all(value == 0 for value in layout().values())
    for (x, fx), (y, fy) in itertools.product(list(points(layout))[:8], list(points(layout))[-8:]):
        both = layout(**{name: x[name] ^ y[name] for name in x})
        assert both == {name: fx[name] ^ fy[name] for name in fx}


@given(layouts())
def test_arrays_and_ints_agree(layout):
    axes = np.meshgrid(*(np.arange(size) for size in layout.in_sizes.values()), indexing="ij")
    result = layout.array(**dict(zip(layout.in_sizes, axes)))
    for inputs, outputs in points(layout):
        position = tuple(inputs.values())
        assert {name: int(values[position]) for name, values in result.items()} == outputs


@given(layouts())
def test_bases_make_the_layout(layout):
    assert LinearLayout.from_bases(layout.bases(), layout.out_sizes) == layout
    for name, group in layout.bases().items():
        for i, basis in enumerate(group):
            assert tuple(layout(**{name: 1 << i}).values()) == basis
    tight = LinearLayout.from_bases(layout.bases(), list(layout.out_sizes))
    assert table(tight) == table(layout)
    assert all(tight.out_sizes[name] <= size for name, size in layout.out_sizes.items())


@given(layouts(("a", "b"), ("x", "y"), 2), st.data())
def test_composition(first, data):
    second = LinearLayout(first.outs, (("u", 2), ("v", 1)), data.draw(columns_for(first.outs, 3)))
    third = LinearLayout(second.outs, (("p", 2),), data.draw(columns_for(second.outs, 2)))
    for inputs, outputs in points(first):
        assert first.compose(second)(**inputs) == second(**outputs)
    assert first.compose(second).compose(third) == first.compose(second.compose(third))
    assert first.compose(second.transpose(ins=("y", "x"))) == first.compose(second)


def columns_for(dims, bits):
    width = sum(w for _, w in dims)
    return st.lists(st.integers(0, (1 << bits) - 1), min_size=width, max_size=width).map(tuple)


@given(layouts())
def test_images_and_kernels(layout):
    images = [tuple(outputs.values()) for _, outputs in points(layout)]
    assert len(set(images)) == 1 << layout.rank()
    assert layout.is_injective() == (len(set(images)) == len(images))
    assert layout.is_surjective() == (len(set(images)) == np.prod([*layout.out_sizes.values()]))


@given(layouts())
def test_free_masks_leave_one_of_each_copy(layout):
    masks = layout.free_masks()
    kept = [tuple(o.values()) for i, o in points(layout) if not any(i[name] & masks[name] for name in i)]
    assert sorted(kept) == sorted({tuple(o.values()) for _, o in points(layout)})


@given(layouts())
def test_pseudo_inverse(layout):
    back = layout.pseudo_inverse()
    for _, outputs in points(layout):
        assert layout(**back(**outputs)) == outputs
        assert not any(back(**outputs)[name] & mask for name, mask in layout.free_masks().items())
    if layout.is_injective() and layout.is_surjective():
        assert back == layout.inverse() and back.inverse() == layout
    else:
        with pytest.raises(LayoutError, match="no inverse"):
            layout.inverse()


@given(layouts(("a", "b"), ("x", "y"), 2), layouts(("c", "d"), ("y", "x"), 2))
def test_invert_and_compose(first, second):
    reached = {tuple(sorted(o.items())) for _, o in points(second)}
    fits = all(size <= second.out_sizes[name] for name, size in first.out_sizes.items())
    if not fits or any(tuple(sorted(o.items())) not in reached for _, o in points(first)):
        with pytest.raises(LayoutError):
            first.invert_and_compose(second)
        return
    way = first.invert_and_compose(second)
    for inputs, outputs in points(first):
        assert second(**way(**inputs)) == outputs


@given(layouts(("a", "b"), ("x", "y"), 2), layouts(("b", "c"), ("y", "z"), 2), layouts(("c", "a"), ("z", "x"), 1))
def test_product(first, second, third):
    product = first * second
    assert list(product.in_sizes) == ["a", "b", "c"] and list(product.out_sizes) == ["x", "y", "z"]
    for inputs, outputs in points(product):
        low = {name: inputs[name] % size for name, size in first.in_sizes.items()}
        high = {name: inputs[name] // first.in_sizes.get(name, 1) for name in second.in_sizes}
        inner, outer = first(**low), second(**high)
        for name, value in outputs.items():
            assert value == inner.get(name, 0) + first.out_sizes.get(name, 1) * outer.get(name, 0)
    assert (first * second) * third == first * (second * third)


@given(layouts(("a", "b", "c"), ("x", "y"), 2))
def test_dims(layout):
    turned = layout.transpose(ins=("c", "a", "b"), outs=("y", "x"))
    assert table(turned) == table(layout)
    assert turned.transpose(ins=("a", "b", "c"), outs=("x", "y")) == layout
    assert layout.rename({"a": "q", "y": "z"}).rename({"q": "a", "z": "y"}) == layout
    part = layout.sublayout(["b"], ["y"])
    for inputs, outputs in points(part):
        assert outputs == {"y": layout(**inputs)["y"]}
    total = int(np.prod([*layout.in_sizes.values()]))
    flat = layout.reshape(ins={"i": total})
    assert flat.reshape(ins=layout.in_sizes) == layout
    for i, (_, outputs) in enumerate(points(layout)):  # the first dim runs fastest
        assert flat(i=i) == outputs
    out = layout.reshape(outs={"o": int(np.prod([*layout.out_sizes.values()]))})
    for inputs, outputs in points(layout):
        assert out(**inputs)["o"] == outputs["x"] + layout.out_sizes["x"] * outputs["y"]


def test_identity_and_zeros():
    assert [LinearLayout.identity(8, "a", "x")(a=i)["x"] for i in range(8)] == list(range(8))
    zeros = LinearLayout.zeros(8, "a", "x", 4)
    assert {zeros(a=i)["x"] for i in range(8)} == {0} and zeros.out_sizes == {"x": 4}
    assert zeros.free_masks() == {"a": 7}


def test_text():
    layout = LinearLayout.from_bases({"lane": [(0, 1), (1, 1)], "warp": []}, {"dim0": 2, "dim1": 2})
    assert str(layout) == "(lane 4, warp 1) -> (dim0 2, dim1 2)\n  lane  (0,1) (1,1)\n  warp  -"
    assert picture(layout) == "     0    1\n0 T0:0 T1:0\n1 T3:0 T2:0"
    assert picture(LinearLayout.zeros(2, "lane", "dim0", 2)) == "      0 1\n0 T0:0+ ."
    assert owners(LinearLayout.zeros(2, "lane", "dim0")) == {(0,): [{"lane": 0}, {"lane": 1}]}
    with pytest.raises(LayoutError, match="3 dims"):
        picture(LinearLayout((), (("a", 1), ("b", 1), ("c", 1)), ()))


def test_refusals():
    identity = LinearLayout.identity(4, "a", "x")
    for wrong, message in (
        (lambda: log2(12), "power of two"),
        (lambda: log2(0), "power of two"),
        (lambda: identity(a=4), "a = 4 outside"),
        (lambda: identity(b=0), "no input"),
        (lambda: identity.array(a=np.array([0, 4])), "outside of 0..3"),
        (lambda: identity.array(b=np.array([0])), "no input"),
        (lambda: identity.compose(LinearLayout.identity(2, "x", "y")), "do not fit"),
        (lambda: identity.compose(LinearLayout.identity(4, "z", "y")), "do not fit"),
        (lambda: identity.reshape(ins={"a": 8}), "does not reshape"),
        (lambda: identity.transpose(ins=("b",)), "no order"),
        (lambda: identity.rename({"a": "b"}).sublayout(["b"], ["x"]) * LinearLayout((("b", 62),), (), (0,) * 62), "62"),
        (lambda: LinearLayout((("a", 1), ("a", 1)), (), (0, 0)), "twice"),
        (lambda: LinearLayout((("a", 1),), (("x", 1),), (2,)), "outside"),
        (lambda: LinearLayout((("a", 1),), (), ()), "0 columns"),
        (lambda: LinearLayout.from_bases({"a": [(4,)]}, {"x": 4}), "does not lie"),
    ):
        with pytest.raises(LayoutError, match=message):
            wrong()
