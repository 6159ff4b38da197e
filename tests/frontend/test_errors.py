"""Mistakes in kernels: each error has its class, underlines the construct, names types and says what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilewright.language as tl
from tests.frontend.helpers import F32, I32, build, f32, failure, i32, jit, line_of
from tilewright.base.errors import (
    CompilationError,
    DTypeError,
    LanguageTypeError,
    LanguageValueError,
    ShapeError,
    UndefinedNameError,
)

TABLE = [42]


def plain_function(x):
    return x


# --- names ----------------------------------------------------------------------------------------------------


def test_unknown_name() -> None:
    @jit
    def kernel(x_ptr):
        tl.store(x_ptr, lenght)  # noqa: F821

    error = failure(kernel, F32, marked="lenght", match="lenght is not defined")
    assert isinstance(error.__cause__, UndefinedNameError)
    assert error.location.line == line_of(kernel, "lenght)")
    assert error.location.file == __file__ and "in test_unknown_name.<locals>.kernel" in str(error)


def test_a_close_name_is_suggested() -> None:
    @jit
    def kernel(x_ptr):
        tl.store(x_prt, 0.0)  # noqa: F821

    failure(kernel, F32, marked="x_prt", match="hint: did you mean `x_ptr`?")


def test_names_of_one_branch() -> None:
    @jit
    def kernel(p, n):
        if n > 0:
            x = 1.0
        tl.store(p, x)

    error = failure(kernel, F32, i32, marked="x", match="only in the then branch of the `if` at line")
    assert f"line {line_of(kernel, 'if n > 0')}" in str(error)
    assert "give `x` a value of the same type before" in str(error)


def test_names_of_a_loop_body() -> None:
    @jit
    def kernel(p, n):
        for i in range(n):
            x = 1.0
        tl.store(p, x + i)

    failure(kernel, F32, i32, marked="x", match="x is not defined here: it gets its value inside the loop at line")


def test_names_of_a_condition() -> None:
    @jit
    def kernel(p, n):
        while (x := tl.load(p)) < n:
            tl.store(p, x)

    failure(kernel, F32, i32, marked="x", match="a name that the condition of `while` assigns must have a value before")


def test_globals_must_be_constants() -> None:
    @jit
    def kernel(p):
        tl.store(p, TABLE[0])

    error = failure(kernel, F32, marked="TABLE", match="Cannot access global variable TABLE (a list)")
    assert "write `TABLE` as a tuple of constants" in str(error)


def test_plain_functions() -> None:
    @jit
    def kernel(p):
        tl.store(p, plain_function(1.0))

    failure(kernel, F32, marked="plain_function", match="decorate `plain_function` with @tilewright.jit")


def test_python_builtins() -> None:
    @jit
    def kernel(p):
        tl.store(p, input("value: "))

    failure(kernel, F32, marked="input", match="Python's `input` cannot be used in a kernel")


# --- types and shapes -----------------------------------------------------------------------------------------------


def test_shapes() -> None:
    @jit
    def kernel(p):
        x = tl.arange(0, 8) + tl.arange(0, 16)
        tl.store(p, x)

    error = failure(kernel, I32, marked="tl.arange(0, 8) + tl.arange(0, 16)", match="8 and 16")
    assert isinstance(error.__cause__, ShapeError)
    assert isinstance(error.__cause__, ValueError)


def test_data_types() -> None:
    @jit
    def kernel(p, x):
        tl.store(p, x & 1)

    error = failure(kernel, F32, f32, marked="x & 1", match="invalid operands of type")
    assert isinstance(error.__cause__, (DTypeError, LanguageTypeError)) and "fp32" in str(error)


def test_operators_that_do_not_exist() -> None:
    @jit
    def power(p, x):
        tl.store(p, x**2)

    @jit
    def product(p, x):
        tl.store(p, x @ x)

    failure(power, F32, f32, marked="x**2", match="unsupported operand type(s) for **: 'fp32' and 'constexpr[2]'")
    failure(product, F32, f32, marked="x @ x", match="hint: write tl.dot(a, b)")


def test_shapes_must_be_constants() -> None:
    @jit
    def kernel(p, n):
        x = tl.zeros((n, 4), tl.float32)
        tl.store(p + tl.arange(0, 4), x)

    error = failure(kernel, F32, i32, marked="tl.zeros((n, 4), tl.float32)", match="constexpr")
    assert "int32" in str(error) and isinstance(error.__cause__, TypeError)


def test_arange_of_a_run_time_value() -> None:
    @jit
    def kernel(p, n):
        tl.store(p + tl.arange(0, n), 0.0)

    failure(kernel, F32, i32, marked="tl.arange(0, n)", match="arange's arguments must be of type tl.constexpr")


@pytest.mark.parametrize(
    ("index", "match"),
    [
        ("8", "index 8 is out of bounds for dimension 0 with size 8"),
        ("n:3", "unsupported tensor index: slice int32:3:"),
        ("x", "unsupported tensor index: int32[8]"),
        ("1.5", "unsupported tensor index: 1.5"),
        ("True", "unsupported tensor index: True"),
        ("::0", "slice step cannot be zero"),
        ("3:3", "slice 3:3: selects nothing of dimension 0 with size 8"),
        ("..., ...", "an index can only have a single ellipsis"),
        (":, :", "too many indices: 2 for a tensor of type int32[8]"),
    ],
)
def test_tensor_indices(tmp_path: Path, index: str, match: str) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(f"def kernel(p, n):\n    x = tl.arange(0, 8)\n    tl.store(p, x[{index}])\n")
    namespace: dict[str, Any] = {"tl": tl}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    failure(jit(namespace["kernel"]), I32, i32, marked=f"x[{index}]", match=match)


def test_assignment_to_parts() -> None:
    @jit
    def kernel(p):
        x = tl.arange(0, 8)
        x[2:4] = tl.arange(0, 3)
        tl.store(p, tl.sum(x))

    failure(
        kernel,
        I32,
        marked="x[2:4] = tl.arange(0, 3)",
        match="a value of shape [3] does not fit into",
    )


def test_attributes() -> None:
    @jit
    def kernel(p, x):
        tl.store(p, x.astype(tl.int32))

    @jit
    def module(p, x):
        tl.store(p, tl.maximun(x, 0.0))

    failure(kernel, I32, f32, marked="x.astype", match="a tensor of type fp32 has no attribute 'astype'")
    failure(module, F32, f32, marked="tl.maximun", match="hint: did you mean `maximum`?")


def test_constants_out_of_range() -> None:
    @jit
    def zero(p, N: tl.constexpr):
        tl.store(p, 8 // N)

    @jit
    def index(p, t):
        tl.store(p, t[2])

    error = failure(zero, F32, 0, marked="8 // N", match="in a compile-time expression")
    assert isinstance(error.__cause__, LanguageValueError)
    failure(index, F32, (i32, i32), marked="t[2]", match="index 2 is out of range for (int32, int32)")


def test_index_of_a_tuple_must_be_constant() -> None:
    @jit
    def kernel(p, t, n):
        for i in range(n):
            tl.store(p, t[i])

    failure(kernel, F32, (i32, i32), i32, marked="t[i]", match="unroll the loop with tl.static_range")


# --- control flow ---------------------------------------------------------------------------------------------------


def test_a_carried_value_changes_its_type() -> None:
    @jit
    def kernel(p, n):
        total = 0
        for i in range(n):
            total += tl.load(p + i)
        tl.store(p, total)

    error = failure(kernel, F32, i32, marked="total", match="Loop-carried variable total has initial type int32")
    assert "re-assigned to fp32 in loop! Please make sure that the type stays consistent." in str(error)
    assert ".to(tl.int32)" in str(error)
    assert error.location.line == line_of(kernel, "total +=")


def test_a_carried_tile_changes_its_shape() -> None:
    @jit
    def kernel(p, n):
        acc = 0.0
        while n > 0:
            acc = acc + tl.load(p + tl.arange(0, 8))
            n -= 1

    failure(kernel, F32, i32, marked="acc", match="initial type fp32 but is re-assigned to fp32[8] in loop!")


def test_a_constant_changes_in_a_loop() -> None:
    @jit
    def declared(p, n):
        x: tl.constexpr = 1
        for i in range(n):
            x = i

    @jit
    def parameter(p, n, B: tl.constexpr):
        for i in range(n):
            B = B * 2

    match = "Loop carried variable x changed type, was constexpr[1] but is now int32"
    failure(declared, F32, i32, marked="x", match=match)
    failure(parameter, F32, i32, 8, marked="B", match="Loop carried variable B changed type")


def test_branches_disagree() -> None:
    @jit
    def live(p, n):
        y = n
        if n > 0:
            y = 1.0
        tl.store(p, y)

    @jit
    def fresh(p, n):
        if n > 0:
            y = 1.0
        else:
            y = 1
        tl.store(p, y)

    @jit
    def constant(p, n):
        x: tl.constexpr = 1
        if n > 0:
            x = 2
        tl.store(p, x)

    message = "initial value for `y` is of type int32[], but the then block redefines it as fp32[]"
    error = failure(live, F32, i32, marked="y", match=message)
    assert error.location.line == line_of(live, "y = 1.0")
    failure(fresh, F32, i32, marked="y", match="Mismatched type for y between then block (fp32) and else block (int32)")
    message = "initial value for `x` is of type constexpr[1], but the then block redefines it as int32[]"
    failure(constant, F32, i32, marked="x", match=message)


def test_ternary_disagrees() -> None:
    @jit
    def kernel(p, n):
        tl.store(p, 1 if n > 0 else 1.0)

    message = "Ternary expression with dynamic condition has inconsistent types int32 and fp32"
    failure(kernel, F32, i32, marked="1 if n > 0 else 1.0", match=message)


def test_conditions() -> None:
    @jit
    def tile(p):
        if tl.arange(0, 8) > 3:
            tl.store(p, 1.0)

    @jit
    def text(p, MODE: tl.constexpr):
        if MODE:
            tl.store(p, 1.0)

    @jit
    def forever(p):
        while True:
            tl.store(p, 1.0)

    error = failure(tile, F32, marked="tl.arange(0, 8) > 3", match="Boolean value of Tensor with more than one value")
    assert "int1[8]" in str(error) and "tl.where" in str(error)
    failure(text, F32, "fast", marked="MODE", match="not objects of type str")
    failure(forever, F32, marked="True", match="nothing leaves the loop")


def test_loop_bounds() -> None:
    @jit
    def floats(p, x):
        for i in range(x):
            tl.store(p + i, 0.0)

    @jit
    def zero(p, n):
        for i in range(0, n, 0):
            tl.store(p + i, 0.0)

    @jit
    def static(p, n):
        for i in tl.static_range(n):
            tl.store(p + i, 0.0)

    @jit
    def tensor(p):
        for i in tl.arange(0, 8):
            tl.store(p + i, 0.0)

    failure(floats, F32, f32, marked="range(x)", match="For loop bounds and step must all be ints, are (")
    failure(zero, F32, i32, marked="range(0, n, 0)", match="the step of a loop must not be zero")
    failure(static, F32, i32, marked="tl.static_range(n)", match="is not a constexpr")
    failure(tensor, F32, marked="tl.arange(0, 8)", match="Only `range` and `static_range` iterators")


def test_returns_disagree() -> None:
    @jit
    def helper(x):
        if x > 0:
            return x
        return tl.load(x.to(tl.pointer_type(tl.int32)))

    @jit
    def other(x):
        if x > 0:
            return
        return x

    @jit
    def kernel(p, n):
        tl.store(p, helper(n.to(tl.int64)))

    @jit
    def kernel2(p, n):
        tl.store(p, other(n))

    failure(
        kernel, F32, i32, marked="return tl.load(x.to(tl.pointer_type(tl.int32)))",
        match="Return type mismatch: int64 and int32. Note all return types were: int64, int32",
    )  # fmt: skip
    failure(kernel2, F32, i32, marked="return x", match="Return type mismatch: ")


def test_kernels_return_nothing() -> None:
    @jit
    def kernel(p):
        return tl.load(p)

    with pytest.raises(CompilationError, match="a kernel returns nothing, but kernel returns fp32"):
        build(kernel, F32)
