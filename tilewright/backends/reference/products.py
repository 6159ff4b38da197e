"""Sums of the interpreter take products in as those of compiled kernels do; the rule is `ops/fp_contraction.py`.

A value that is a product remembers its factors, when it was made, and in which stretch of the program: branches and
loops of run time begin a new one (`hooks.py`), and only a sum of the same stretch takes the product in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.backends.reference.value import EagerValue, Product
from tilewright.ops import fp_contraction
from tilewright.ops.elementwise_reference import fused_multiply_add
from tilewright.ops.spec import Array, Call


def factors(value: Any, stretch: int) -> Product | None:
    """What a value remembers, if a sum of this stretch may take it in."""
    product: Product | None = value.product
    return product if product is not None and product.stretch == stretch else None


def among(values: Sequence[Any], stretch: int) -> list[tuple[int, Product]]:
    """The products among some values that a sum of this stretch may take in, with their numbers; earlier ones first."""
    found = [(index, factors(value, stretch)) for index, value in enumerate(values) if value.product is not None]
    known = [(index, product) for index, product in found if product is not None]
    return sorted(known, key=lambda entry: entry[1].made)


def remember(value: EagerValue, operands: Sequence[EagerValue], made: int, stretch: int) -> None:
    """Make a product remember its factors, and these nothing: they may be products of products."""
    x, y = (EagerValue(operand.type, operand.data) for operand in operands)
    value.product = Product((x, y), made, stretch)


def fused(
    kind: type[Any], operands: Sequence[EagerValue], call: Call, stretch: int
) -> tuple[Any, Call, list[Any]] | None:
    """What a sum or difference evaluates where it takes a product in: reference, call and operands; else None."""
    known = [factors(operand, stretch) for operand in operands]
    which = fp_contraction.taken(*[None if product is None else product.made for product in known])
    if which is None:
        return None
    product = known[which]
    assert product is not None
    type_ = call.result_types[0]
    inputs = [*product.factors, operands[1 - which]]
    return _REFERENCES[fp_contraction.signs(kind, which)], Call({}, (type_,) * 3, (type_,)), inputs


def _reference(of_product: bool, of_other: bool) -> Any:
    def reference(call: Call, x: Array, y: Array, z: Array) -> Array:
        return fused_multiply_add(call, np.negative(x) if of_product else x, y, np.negative(z) if of_other else z)

    return reference


_REFERENCES = {signs: _reference(*signs) for signs in ((False, False), (True, False), (False, True))}
