"""Mistakes in calls, refused syntax, and the text of an error; see test_errors.py for names, types and control flow."""

from __future__ import annotations

import ast
import pickle

import pytest

import tilewright.language as tl
from tests.frontend.helpers import F32, I32, build, f32, failure, i32, jit, line_of, underlined
from tilewright.base.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from tilewright.frontend.frame import VISITORS

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


@pytest.mark.parametrize(("other", "named"), [("-0.0", "-0.0"), ("float('nan')", "NaN")])
@pytest.mark.parametrize("function", ["min", "max"])
def test_extremes_of_constants_that_have_no_order(tmp_path, function: str, other: str, named: str) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(f"def kernel(p):\n    tl.store(p, {function}(1.0, {other}))\n")
    namespace: dict[str, object] = {"tl": tl}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    error = failure(
        jit(namespace["kernel"]),
        F32,
        marked=f"{function}(1.0, {other})",
        match=f"{function}() of constants does not take {named}",
    )
    assert f"tl.{function}imum" in str(error)


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

    error = failure(kernel, F32, f32, marked="x[0]", match="too many indices: 1 for a tensor of type fp32")
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
    ("async def inner(x):\n  return x", None, "kernels do not wait"),
    ("x = {k: k for k in (1, 2)}", "{k: k for k in (1, 2)}", "write dict([(key, value) for ...])"),
    ("t = (1, 2)\nt[0] = 1", "t[0]", "kernel tuples and lists do not change"),
    ("(n, n)[0] = 1", "(n, n)[0]", "only a part of a variable can be assigned"),
    ("class A:\n  pass", None, "unsupported AST node type: ClassDef"),
    ("try:\n  pass\nexcept ValueError:\n  pass", None, "kernels have no exceptions"),
    ("raise ValueError", "raise ValueError", "use tl.static_assert"),
    ("import os", "import os", "import at module level"),
    ("global g", "global g", "unsupported AST node type: Global"),
    ("del n", "del n", "unsupported AST node type: Delete"),
    ("with n:\n  pass", None, "unsupported AST node type: With"),
    ("x = {1, 2}", "{1, 2}", "use a tuple"),
    ("x = yield", "yield", "unsupported AST node type: Yield"),
    ("n.x = 1", "n.x", "Attribute assignment is not supported"),
    ("x = 1j", "1j", "a literal of type complex"),
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
    missing = [c.__name__ for base in (ast.stmt, ast.expr) for c in base.__subclasses__() if c not in VISITORS]
    assert not missing


# --- the error itself -------------------------------------------------------------------------------------------------


def test_the_text_of_an_error() -> None:
    @jit
    def kernel(p):
        x = tl.arange(0, 8)
        tl.store(p, x[x])

    with pytest.raises(CompilationError) as caught:
        build(kernel, I32)
    line = line_of(kernel, "x[x]")
    assert str(caught.value).splitlines() == [
        f'File "{__file__}", line {line}, column 21, in test_the_text_of_an_error.<locals>.kernel:',
        f" {line - 2} |     def kernel(p):",
        f" {line - 1} |         x = tl.arange(0, 8)",
        f" {line} |         tl.store(p, x[x])",
        f" {'':>{len(str(line))}} |                     ^^^^",
        "unsupported tensor index: int32[8]",
        "hint: only constants, `:`, `...`, None and scalar integers index a tile; select by a tile with tl.gather",
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
