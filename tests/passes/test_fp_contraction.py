"""Which sums take products in; that compiled code and the interpreter agree is tested in `tests/launch`."""

from __future__ import annotations

import re

import pytest

from tilewright.ops.text import parse_module, print_module
from tilewright.passes.fp_contraction import contract_floats

_KERNEL = """
module {{
  tt.func public @k(%p: !tt.ptr<{t}>, %x: {t}, %y: {t}, %z: {t}, %c: i1, %n: i32) {{
    {body}
    tt.store %p, %s : !tt.ptr<{t}>
    tt.return
  }}
}}
"""
_PRODUCT = "%m = arith.mulf %x, %y : {t}\n"


def contracted(body: str, type_: str = "f32") -> list[str]:
    """The arithmetic of a kernel after the pass, one operation a line."""
    module = parse_module(_KERNEL.format(body=body, t=type_).replace("{t}", type_))
    contract_floats(module)
    text = print_module(module, locations=False)
    return re.findall(r"(?:arith\.(?:addf|subf|negf)|math\.fma) %[^:]*", text)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (_PRODUCT + "%s = arith.addf %m, %z : {t}", ["math.fma"]),
        (_PRODUCT + "%s = arith.addf %z, %m : {t}", ["math.fma"]),
        (_PRODUCT + "%s = arith.subf %m, %z : {t}", ["arith.negf", "math.fma"]),
        (_PRODUCT + "%s = arith.subf %z, %m : {t}", ["arith.negf", "math.fma"]),
        (_PRODUCT + "%a = arith.negf %m : {t}\n%s = arith.addf %a, %z : {t}", ["arith.negf", "arith.addf"]),
        (_PRODUCT + "%a = arith.addf %m, %z : {t}\n%s = arith.addf %m, %a : {t}", ["math.fma", "math.fma"]),
    ],
)
def test_forms(body: str, names: list[str]) -> None:
    assert [line.split()[0] for line in contracted(body)] == names


def test_of_two_products_the_later_is_taken() -> None:
    body = _PRODUCT + "%o = arith.mulf %z, %z : {t}\n%s = arith.addf %m, %o : {t}"
    assert contracted(body) == ["math.fma %z, %z, %m "]
    assert contracted(body.replace("%m, %o", "%o, %m")) == ["math.fma %z, %z, %m "]


@pytest.mark.parametrize("type_", ["f16", "bf16", "f64"])
def test_of_every_float(type_: str) -> None:
    assert [line.split()[0] for line in contracted(_PRODUCT + "%s = arith.addf %m, %z : {t}", type_)] == ["math.fma"]


def test_a_branch_between_rounds_the_product() -> None:
    inside = (
        _PRODUCT + "%s = scf.if %c -> ({t}) {\n%a = arith.addf %m, %z : {t}\nscf.yield %a : {t}\n"
        "} else {\nscf.yield %z : {t}\n}"
    )
    behind = _PRODUCT + "scf.if %c {\ntt.store %p, %z : !tt.ptr<{t}>\n}\n%s = arith.addf %m, %z : {t}"
    for body in (inside, behind):
        assert [line.split()[0] for line in contracted(body.replace("{t}", "f32"))] == ["arith.addf"]
