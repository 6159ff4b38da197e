"""Mistakes in kernels: each error has its class, underlines the construct, names types and says what to write."""

from __future__ import annotations

import ast
import pickle

import pytest

import tilewright.language as tl
from tests.frontend.helpers import F32, I32, build, f32, failure, i32, jit, line_of, underlined
from tilewright.base.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    DTypeError,
    LanguageTypeError,
    LanguageValueError,
    ShapeError,
    UndefinedNameError,
    UnsupportedLanguageConstruct,
)

PLAIN = 42
TYPED: tl.constexpr = 42  # an annotation alone does not make a constant


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


def test_the_counter_behind_the_loop() -> None:
    @jit
    def kernel(p, n):
        i = 0
        for i in range(n):
            tl.store(p, 1.0)
        tl.store(p, i)

    failure(kernel, F32, i32, marked="i", match="i is not defined here")


@pytest.mark.parametrize("value", [PLAIN, TYPED])
def test_globals_must_be_constexpr(value: int) -> None:
    @jit
    def kernel(p):
        tl.store(p, PLAIN if value == PLAIN else TYPED)

    @jit
    def plain(p):
        tl.store(p, TYPED)

    error = failure(plain, F32, marked="TYPED", match="Cannot access global variable TYPED")
    assert "write `TYPED = tl.constexpr(42)`" in str(error)
    failure(kernel, F32, marked="value", match="Cannot access global variable value")


def test_plain_functions() -> None:
    @jit
    def kernel(p):
        tl.store(p, plain_function(1.0))

    failure(kernel, F32, marked="plain_function", match="decorate `plain_function` with @tilewright.jit")


def test_python_builtins() -> None:
    @jit
    def kernel(p):
        for i, x in enumerate((1, 2)):
            tl.store(p + i, x)

    failure(kernel, F32, marked="enumerate", match="Python's `enumerate` cannot be used in a kernel")


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


def test_tensor_indices() -> None:
    @jit
    def element(p):
        x = tl.arange(0, 8)
        tl.store(p, x[0])

    @jit
    def part(p):
        x = tl.arange(0, 8)
        tl.store(p, x[0:2])

    @jit
    def many(p):
        x = tl.arange(0, 8)
        tl.store(p, x[:, :])

    error = failure(element, I32, marked="x[0]", match="unsupported tensor index: constexpr[0]")
    assert "tl.gather" in str(error)
    failure(part, I32, marked="x[0:2]", match="unsupported tensor index: slice 0:2:None")
    failure(many, I32, marked="x[:, :]", match="too many indices: 2 for a tensor of type int32[8]")


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
    failure(forever, F32, marked="True", match="the condition of `while` is the compile-time constant True")


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


def test_returns_in_loops() -> None:
    @jit
    def kernel(p, n):
        for i in range(n):
            if i > 3:
                return
            tl.store(p + i, 0.0)

    match = "Cannot have `return` statements inside `while` or `for` statements"
    failure(kernel, F32, i32, cls=UnsupportedLanguageConstruct, marked="return", match=match)


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


# --- calls ----------------------------------------------------------------------------------------------------------


def test_missing_arguments() -> None:
    @jit
    def helper(x, scale):
        return x * scale

    @jit
    def kernel(p, x):
        tl.store(p, helper(x))

    @jit
    def extra(p, x):
        tl.store(p, helper(x, 1, 2))

    error = failure(kernel, F32, f32, marked="helper(x)", match="helper(): missing a required argument: 'scale'")
    assert "helper(x, scale)" in str(error) and isinstance(error.__cause__, TypeError)
    failure(extra, F32, f32, marked="helper(x, 1, 2)", match="too many positional arguments")


def test_arguments_of_builtins() -> None:
    @jit
    def kernel(p):
        tl.store(p, tl.arange(8))

    @jit
    def unknown(p):
        tl.store(p, 1.0, maks=None)

    error = failure(kernel, F32, marked="tl.arange(8)", match="arange(): missing a required argument: 'end'")
    assert "arange(start, end)" in str(error)
    failure(unknown, F32, marked="tl.store(p, 1.0, maks=None)", match="unexpected keyword argument 'maks'")


def test_errors_in_a_callee_show_the_calls() -> None:
    @jit
    def inner(x):
        return x + undefined  # noqa: F821

    @jit
    def outer(x):
        return inner(x)

    @jit
    def kernel(p, x):
        tl.store(p, outer(x))

    error = failure(kernel, F32, f32, marked="undefined", match="called from:")
    first, second, third = error.location, error.location.caller, error.location.caller.caller
    assert [place.line for place in (first, second, third)] == [
        line_of(inner, "undefined"), line_of(outer, "inner(x)"), line_of(kernel, "outer(x)"),
    ]  # fmt: skip
    assert underlined(second) == "inner(x)" and third.caller is None
    assert str(error).index("return inner(x)") < str(error).index("tl.store(p, outer(x))")


def test_errors_in_a_noinline_callee_show_the_call() -> None:
    @jit(noinline=True)
    def helper(x):
        return x[0]

    @jit
    def kernel(p, x):
        tl.store(p, helper(x))

    error = failure(kernel, F32, f32, marked="x[0]", match="unsupported tensor index")
    assert error.location.caller.line == line_of(kernel, "helper(x)")


def test_noinline_takes_scalars() -> None:
    @jit(noinline=True)
    def helper(x):
        return x

    @jit
    def kernel(p):
        tl.store(p + tl.arange(0, 4), helper(tl.arange(0, 4)))

    match = "is marked noinline, but was called with non-scalar argument x:int32[4]"
    failure(kernel, F32, marked="helper(tl.arange(0, 4))", match=match)


def test_recursion() -> None:
    @jit
    def kernel(p, x):
        tl.store(p, endless(x))

    failure(kernel, F32, f32, marked="endless(x + 1)", match="calls itself with arguments of the same types")


@jit
def endless(x):
    return endless(x + 1)


def test_things_that_cannot_be_called() -> None:
    @jit
    def kernel(p, x):
        tl.store(p, x(1))

    failure(kernel, F32, f32, marked="x(1)", match="fp32 cannot be called in a kernel")


def test_constants_only() -> None:
    @jit
    def number(p, x):
        tl.store(p, int(x))

    @jit
    def length(p):
        tl.store(p, len(tl.arange(0, 4)))

    @jit
    def text(p, x):
        tl.static_print(f"x is {x}")

    failure(number, F32, f32, marked="int(x)", match="hint: convert a tensor with .to(tl.int32)")
    failure(length, F32, marked="len(tl.arange(0, 4))", match="use x.shape[0]")
    found = "Cannot evaluate f-string containing non-constexpr conversion values"
    with pytest.raises(CompilationError, match=found):
        build(text, F32, f32)


def test_static_assert() -> None:
    @jit
    def kernel(p, N: tl.constexpr):
        tl.static_assert(N % 32 == 0, "N must be a multiple of 32")

    error = failure(
        kernel, F32, 8, cls=CompileTimeAssertionFailure,
        marked='tl.static_assert(N % 32 == 0, "N must be a multiple of 32")', match="N must be a multiple of 32",
    )  # fmt: skip
    assert isinstance(error, CompilationError)


def test_reassigned_constants() -> None:
    @jit
    def kernel(p):
        x: tl.constexpr = 1
        x: tl.constexpr = 2
        tl.store(p, x)

    failure(kernel, F32, marked="x", match="x is already defined. constexpr cannot be reassigned.")


def test_unpacking() -> None:
    @jit
    def many(p):
        a, b = 1, 2, 3

    @jit
    def few(p):
        a, b = (1,)

    @jit
    def value(p):
        _a, _b = tl.load(p)

    failure(many, F32, marked="a, b", match="too many values to unpack (expected 2)")
    failure(few, F32, marked="a, b", match="not enough values to unpack (expected 2, got 1)")
    failure(value, F32, marked="_a, _b", match="cannot unpack fp32 into 2 names")


# --- syntax ---------------------------------------------------------------------------------------------------------

_SYNTAX = [
    ("for i in range(n):\n  break", "break", "unsupported AST node type: Break"),
    ("for i in range(n):\n  continue", "continue", "put the rest of the loop body under an `if`"),
    ("def inner(x):\n  return x", None, "Move the helper function to module level"),
    ("class A:\n  pass", None, "unsupported AST node type: ClassDef"),
    ("try:\n  pass\nexcept ValueError:\n  pass", None, "kernels have no exceptions"),
    ("raise ValueError", "raise ValueError", "use tl.static_assert"),
    ("import os", "import os", "import at module level"),
    ("global g", "global g", "unsupported AST node type: Global"),
    ("del n", "del n", "unsupported AST node type: Delete"),
    ("with n:\n  pass", None, "unsupported AST node type: With"),
    ("match n:\n  case 1:\n    pass", None, "write if/elif/else"),
    ("x = {1: 2}", "{1: 2}", "unsupported AST node type: Dict"),
    ("x = {1, 2}", "{1, 2}", "use a tuple"),
    ("x = tuple(i for i in (1, 2))", "(i for i in (1, 2))", "use a list comprehension"),
    ("x = yield", "yield", "unsupported AST node type: Yield"),
    ("n.x = 1", "n.x", "Attribute assignment is not supported"),
    ("n[0] = 1", "n[0]", "assignment to an element or slice of a tile"),
    ("a, *b = (1, 2)", "a, *b", "starred assignment targets are not supported"),
    ("max(**n)", "n", "`**` in a call is not supported"),
    ("x = 1j", "1j", "a literal of type complex"),
    ("for i in range(n):\n  pass\nelse:\n  x = 1", "x = 1", "`else` of a loop is not supported"),
    ("while n > 0:\n  pass\nelse:\n  x = 1", "x = 1", "`else` of a loop is not supported"),
]


@pytest.mark.parametrize(("code", "marked", "match"), _SYNTAX, ids=[s[2] for s in _SYNTAX])
def test_refused_syntax(tmp_path, code: str, marked: str | None, match: str) -> None:
    body = "\n".join(f"    {line}" for line in code.splitlines())
    path = tmp_path / "kernel.py"
    path.write_text(f"def kernel(n):\n{body}\n")
    namespace: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    with pytest.raises(UnsupportedLanguageConstruct) as caught:
        build(jit(namespace["kernel"]), i32)  # type: ignore[arg-type]
    place = caught.value.location
    assert match in str(caught.value)
    if marked is not None:
        assert underlined(place) == marked
    else:
        assert place.line == 2 and place.col == 4


def test_every_kind_of_syntax_has_a_visitor() -> None:
    from tilewright.frontend.frame import VISITORS

    missing = [c.__name__ for base in (ast.stmt, ast.expr) for c in base.__subclasses__() if c not in VISITORS]
    assert not missing


# --- the error itself -------------------------------------------------------------------------------------------------


def test_the_text_of_an_error() -> None:
    @jit
    def kernel(p):
        x = tl.arange(0, 8)
        tl.store(p, x[0])

    with pytest.raises(CompilationError) as caught:
        build(kernel, I32)
    line = line_of(kernel, "x[0]")
    assert str(caught.value).splitlines() == [
        f'File "{__file__}", line {line}, column 21, in test_the_text_of_an_error.<locals>.kernel:',
        f" {line - 2} |     def kernel(p):",
        f" {line - 1} |         x = tl.arange(0, 8)",
        f" {line} |         tl.store(p, x[0])",
        f" {'':>{len(str(line))}} |                     ^^^^",
        "unsupported tensor index: constexpr[0]",
        "hint: a tile is indexed with None and ':' only; use tl.gather, tl.split, or load the part you need",
    ]


def test_errors_can_be_pickled() -> None:
    @jit
    def kernel(p):
        tl.store(p, unknown)  # noqa: F821

    with pytest.raises(CompilationError) as caught:
        build(kernel, I32)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_failed_kernel_leaves_no_trace() -> None:
    """The same function object compiles after its mistake is out of the way."""

    @jit
    def kernel(p, N: tl.constexpr):
        if N == 1:
            for i in range(N):
                undefined  # noqa: F821
        tl.store(p, 1.0)

    with pytest.raises(CompilationError):
        build(kernel, F32, 1)
    build(kernel, F32, 2)
