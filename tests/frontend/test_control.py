"""Branches and early returns: what is merged, what is left out, and what the IR looks like."""

from __future__ import annotations

import tilewright.language as tl
from tests.frontend.helpers import F32, I32, build, count, f32, i32, jit, text


def _body(printed: str) -> str:
    """The lines of the kernel without indentation and numbers of values."""
    return "\n".join(line.strip() for line in printed.splitlines()[2:-2])


def test_a_constant_condition_visits_one_branch() -> None:
    @jit
    def kernel(p, MODE: tl.constexpr):
        if MODE == "double":
            y = tl.load(p) * 2
        elif MODE is None:
            y = undefined_function(p)  # noqa: F821
        else:
            y = tl.load(p)
        tl.store(p, y)

    assert "scf.if" not in count(kernel, F32, "double")
    assert count(kernel, F32, "single")["arith.mulf"] == 0


def test_names_assigned_in_both_branches_are_results() -> None:
    @jit
    def kernel(p, flag):
        keep = tl.load(p)
        y = keep
        if flag > 3:
            y = keep * 2
            z = flag
            only_here = y
        elif flag == 1:
            z = flag + 1
        else:
            y = keep - 1
            z = flag
        tl.store(p, y + z + keep)

    printed = text(kernel, F32, i32)
    assert printed.count("-> (f32, i32)") == 2
    assert printed.count("scf.yield") == 4


def test_an_if_without_results_has_no_empty_else() -> None:
    @jit
    def kernel(p, flag):
        if flag > 0:
            tl.store(p, 1.0)
        if flag > 1:
            pass

    printed = text(kernel, F32, i32)
    assert printed.count("scf.if") == 1 and "else" not in printed


def test_identical_values_need_no_result() -> None:
    @jit
    def kernel(p, flag):
        x = tl.load(p)
        if flag > 0:
            y = x
            n: tl.constexpr = 4
        else:
            y = x
            n: tl.constexpr = 4
        tl.store(p + tl.arange(0, n), y)

    assert "scf.if" not in count(kernel, F32, i32)


def test_tuples_are_merged_part_by_part() -> None:
    @jit
    def kernel(p, flag):
        pair = (tl.load(p), 1)
        if flag > 0:
            pair = (pair[0] * 2, pair[1])
        tl.store(p, pair[0] + pair[1])

    assert "-> (f32) {" in text(kernel, F32, i32)


def test_a_constant_argument_becomes_a_tensor_where_branches_differ() -> None:
    @jit
    def helper(p, start, flag):
        if flag > 0:
            start = flag
        tl.store(p, start)

    @jit
    def kernel(p, flag):
        helper(p, 7, flag)

    assert "-> (i32)" in text(kernel, I32, i32)


def test_ternary() -> None:
    @jit
    def kernel(p, flag):
        x = tl.load(p) if flag > 0 else 0.0
        tl.store(p, x)
        tl.store(p, 1.0) if flag > 1 else tl.store(p, 2.0)

    printed = text(kernel, F32, i32)
    assert printed.count("scf.if") == 2 and printed.count("tt.load") == 1


def test_scalar_conditions_of_other_types_are_compared_with_zero() -> None:
    @jit
    def kernel(p, n, x):
        if n:
            tl.store(p, 1.0)
        if x:
            tl.store(p, 2.0)
        if not n == 0:
            tl.store(p, 3.0)
        if tl.arange(0, 1) == 0:
            tl.store(p, 4.0)

    found = count(kernel, F32, i32, f32)
    assert found["scf.if"] == 4 and found["tt.unsplat"] == 1


# --- early return ---------------------------------------------------------------------------------------------


def test_what_follows_an_early_return_is_built_in_the_other_branch() -> None:
    @jit
    def kernel(p, n):
        if n == 0:
            return
        tl.store(p, 1.0)

    assert _body(text(kernel, F32, i32)).splitlines()[1:] == [
        "%1 = arith.cmpi eq, %n, %0 : i32",
        "scf.if %1 {",
        "} else {",
        "%2 = arith.constant 1.000000e+00 : f32",
        "tt.store %p, %2 : !tt.ptr<f32>",
        "}",
        "tt.return",
    ]


def test_return_in_the_else_branch() -> None:
    @jit
    def kernel(p, n):
        if n > 0:
            x = 1.0
        else:
            tl.store(p, 0.0)
            return
        tl.store(p, x)

    printed = _body(text(kernel, F32, i32))
    then, other = printed.split("else")
    assert "1.000000e+00" in then and "0.000000e+00" in other
    assert printed.count("tt.store") == 2


def test_code_after_a_return_is_ignored() -> None:
    @jit
    def kernel(p):
        tl.store(p, 1.0)
        return
        undefined(p)  # noqa: F821

    assert count(kernel, F32)["tt.store"] == 1


def test_returns_on_every_path() -> None:
    @jit
    def pick(a, b, MODE: tl.constexpr):
        if MODE == 0:
            return a
        if a > b:
            return a
        elif a == b:
            return b
        else:
            return 1.0

    @jit
    def kernel(p, a, b):
        tl.store(p, pick(a, b, 1))

    printed = text(kernel, F32, f32, f32)
    assert printed.count("scf.if") == 2 and printed.count("-> (f32)") == 2


def test_returns_in_unrolled_loops() -> None:
    @jit
    def find(a, N: tl.constexpr):
        for i in tl.static_range(N):
            if a == i:
                return i * 10
        return -1

    @jit
    def kernel(p, a):
        tl.store(p, find(a, 3))

    printed = text(kernel, I32, i32)
    assert printed.count("scf.if") == 3
    for value in (0, 10, 20, -1):
        assert f"arith.constant {value} : i32" in printed


def test_a_return_on_some_paths_of_a_branch_uses_a_flag() -> None:
    @jit
    def helper(p, n):
        if n > 0:
            if n > 5:
                return 1.0
            x = tl.load(p)
        else:
            x = 2.0
        tl.store(p, x)
        return x

    @jit
    def kernel(p, n):
        tl.store(p, helper(p, n))

    printed = text(kernel, F32, i32)
    assert printed.count("ub.poison") == 1  # x where the inner branch returned
    assert printed.count("tt.store") == 2  # nothing is copied
    assert "-> (f32, i1)" in printed


def test_a_path_without_a_value_gives_an_undefined_one() -> None:
    @jit
    def helper(n):
        if n > 0:
            return n * 2

    @jit
    def kernel(p, n):
        tl.store(p, helper(n))

    assert count(kernel, I32, i32)["ub.poison"] == 1


def test_equal_constants_stay_constants() -> None:
    @jit
    def size(n):
        if n > 0:
            return 16
        return 16

    @jit
    def kernel(p, n):
        tl.store(p + tl.arange(0, size(n)), 1.0)

    assert "tensor<16x!tt.ptr<f32>>" in text(kernel, F32, i32)


def test_statements_after_a_call_that_returned_early_stay_outside() -> None:
    @jit
    def helper(p, n):
        if n > 0:
            return
        tl.store(p, 1.0)

    @jit
    def kernel(p, n):
        helper(p, n)
        tl.store(p, 2.0)

    printed = _body(text(kernel, F32, i32)).splitlines()
    assert printed[-2].startswith("tt.store") and printed[-4] == "}"


def test_return_beside_return_in_nested_branches() -> None:
    @jit
    def kernel(p, n):
        if n > 0:
            if n > 1:
                return
            else:
                tl.store(p, 1.0)
                return
        tl.store(p, 2.0)

    printed = text(kernel, F32, i32)
    assert printed.count("scf.if") == 2 and "ub.poison" not in printed
    build(kernel, F32, i32)
