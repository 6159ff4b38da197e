"""Transposed products of transposed matrices, and those that stay."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import tile_ir
from tilewright.ir.values import defining_op
from tilewright.ops.dot import DotOp
from tilewright.ops.shape import TransOp

K = 16


@tilewright.jit
def turned(a, b, c, BOTH: tl.constexpr, READ: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, K)[:, None] * K + tl.arange(0, K)[None, :]
    x, y = tl.load(a + i), tl.load(b + i)
    product = tl.dot(y.T, x.T if BOTH else x, input_precision="ieee")
    if READ:
        tl.store(c + K * K + i, product)
    tl.store(c + i, product.T)


@pytest.mark.parametrize(("both", "read"), [(True, False), (False, False), (True, True)])
def test_products_are_turned_where_nobody_reads_them_otherwise(both: bool, read: bool) -> None:
    types = {"a": "*fp32", "b": "*fp32", "c": "*fp32"}
    module = tile_ir(turned, types, BOTH=both, READ=read, K=K)
    dots: list[Any] = [op for op in module.walk() if isinstance(op, DotOp)]
    transposed = [isinstance(defining_op(value), TransOp) for value in dots[0].operands[:2]]
    assert transposed == ([True, True] if read else [not both, False])
