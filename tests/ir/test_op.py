"""What operations of tile IR are, so that they are quick to make and to compare."""

from __future__ import annotations

import pytest

from tilewright.ops.constant import ConstantOp
from tilewright.ops.spec import REGISTRY
from tilewright.ops.text import parse_module


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_attributes_have_no_defaults_of_xdsl(name):
    definition = REGISTRY[name].op.get_irdl_definition()
    fields = [*definition.properties.values(), *definition.attributes.values()]
    assert all(getattr(field, "default_value", None) is None for field in fields)


def test_equal_operations_are_one_object():
    module = parse_module("module { tt.func public @k() {\n%a = arith.constant 1 : i32\ntt.return\n} }")
    constant = next(op for op in module.walk() if isinstance(op, ConstantOp))
    assert constant == constant and constant != constant.clone() and len({constant, constant.clone()}) == 2


def test_an_operation_is_not_put_into_itself():
    module = parse_module("module { tt.func public @k() {\ntt.return\n} }")
    function = next(iter(module.ops))
    assert function.is_ancestor(function.body.block.last_op) and function.is_ancestor(function)
    assert not function.body.block.last_op.is_ancestor(function)
    function.detach()
    with pytest.raises(ValueError, match="contained in the operation"):
        function.body.block.add_op(function)
