"""Mistakes that newcomers make, each with the words that put it right."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import TilewrightError


@tilewright.jit
def indexes_a_pointer(p):
    tl.store(p, p[0])


@tilewright.jit
def names_a_type(p):
    tl.store(p, tl.load(p).to("float16"))


@tilewright.jit
def prints_two_texts(p):
    print("a", tl.load(p), "b", tl.load(p))


@tilewright.jit
def stores_a_pointer(p, q):
    tl.store(p, q)


@tilewright.jit
def negates_a_number(p):
    if not tl.load(p).to(tl.int32):
        tl.store(p, 1.0)


@tilewright.jit
def prints_no_text(p):
    print(tl.load(p))


@tilewright.jit
def flips_what_is_not_there(p):
    tl.store(p + tl.arange(0, 4), tl.flip(tl.load(p + tl.arange(0, 4)), 1))


@tilewright.jit
def changes_a_pointer(p, q):
    for _ in range(tl.program_id(0)):
        p = q.to(tl.pointer_type(tl.int32))
    tl.store(p, 1)


@tilewright.jit
def adds_a_number_in_an_array(p, n):
    tl.store(p + tl.arange(0, 4), 1.0, mask=tl.arange(0, 4) < n)


@tilewright.jit
def assigns_to_an_index(p):
    p[0] = 3.0


@tilewright.jit
def calls_a_function_as_a_method(p):
    tl.store(p, tl.load(p).maximum(0.0))


@tilewright.jit
def launches_a_kernel(p):
    assigns_to_an_index[(1,)](p)


@tilewright.jit
def asks_for_a_size_as_in_torch(p):
    tl.store(p, tl.load(p + tl.arange(0, 4)).size(0))


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (launches_a_kernel, "hint: call it as a function, assigns_to_an_index(...)"),
        (asks_for_a_size_as_in_torch, "hint: write x.shape[0]"),
        (assigns_to_an_index, "hint: write tl.store(pointer + index, value)"),
        (calls_a_function_as_a_method, "hint: write tl.maximum(...)"),
        (indexes_a_pointer, "hint: write tl.load(pointer + index)"),
        (names_a_type, "not 'float16'\nhint: write tl.float16"),
        (prints_two_texts, "hint: print once for each text"),
        (negates_a_number, "hint: compare it with zero: x != 0, or x == 0 for `not x`"),
        (prints_no_text, 'hint: write a text ahead of the value: print("x", x)'),
        (flips_what_is_not_there, "flip needs a dimension that the tile has"),
        (changes_a_pointer, "or use another name for the new value"),
        (adds_a_number_in_an_array, "write tl.load(pointer), or pass x.item() instead of x"),
        (stores_a_pointer, "for the number that it points to write tl.load(pointer)"),
    ],
)
def test_the_hint_says_what_to_write(kernel, said) -> None:
    with pytest.raises(TilewrightError) as caught:
        kernel[(1,)](*[np.zeros(4, np.float32)] * len(kernel.params))
    assert said in str(caught.value)


def test_calls_from_python_are_typed() -> None:
    for call in (lambda: indexes_a_pointer(1), lambda: tl.exp(1.0), lambda: list(tl.range(3))):
        with pytest.raises(TilewrightError, match="outside of the scope|only inside|only be used in") as caught:
            call()
        assert isinstance(caught.value, RuntimeError)
    with pytest.raises(TilewrightError, match="does not fit 64 bits") as caught:
        stores_a_pointer[(1,)](np.zeros(4, np.float32), 1 << 70)
    assert isinstance(caught.value, OverflowError)


def test_an_unknown_option_of_the_decorator() -> None:
    with pytest.raises(TilewrightError, match="no option 'noinlin'") as caught:
        tilewright.jit(sized.fn, noinlin=True)
    assert isinstance(caught.value, TypeError) and "did you mean noinline?" in caught.value.hint
    with pytest.raises(TypeError, match="no option 'num_warp'") as caught:
        tilewright.jit(num_warp=4)
    assert "num_warps and its kin are given at the launch" in str(caught.value)


def test_none_is_asked_for_first() -> None:
    with pytest.raises(TilewrightError, match="if x is not None"):
        adds_a_number_in_an_array[(1,)](None, 3)


def test_an_unknown_keyword_is_named_beside_a_missing_argument() -> None:
    with pytest.raises(TilewrightError, match="missing argument `n`; `N` is no parameter"):
        adds_a_number_in_an_array[(1,)](np.zeros(4, np.float32), N=3)


@tilewright.jit
def sized(p, BLOCK: tl.constexpr):
    tl.store(p + tl.arange(0, BLOCK), 1.0)


def test_wrappers_say_what_they_are_given() -> None:
    with pytest.raises(TilewrightError, match="is no configuration"):
        tilewright.autotune([{"BLOCK": 4}], key=[])(sized)
    with pytest.raises(TilewrightError, match="BLOCK is 4, not a function"):
        tilewright.heuristics({"BLOCK": 4})
    for configs in ([4], [4, 8]):
        tuned = tilewright.autotune([tilewright.Config({"BLOCK": size}) for size in configs], key=[])(sized)
        for keyword in ({"BLOCK": 4}, {"num_warps": 4}):
            with pytest.raises(TilewrightError, match=f"Conflicting meta-parameters: {next(iter(keyword))}"):
                tuned[(1,)](np.zeros(8, np.float32), **keyword)


@tilewright.jit
def counted(p, n: tl.constexpr):
    for i in range(n):
        tl.store(p + i, 1.0)


@tilewright.jit
def filled(p, n: tl.constexpr):
    tl.store(p + tl.arange(0, 4), tl.zeros((4,), n))


@tilewright.jit
def helped(p, n: tl.constexpr):
    filled(p, n)


ARRAY = "`n` is annotated tl.constexpr and got an array: leave that off"


@pytest.mark.parametrize(
    ("kernel", "given", "said"),
    [
        (counted, np.ones(1), ARRAY),
        (helped, np.ones(1), ARRAY),
        (sized, np.ones(1), "got array([1.])\nhint: `BLOCK` is annotated"),
        (sized, "many", "arange's arguments must be integers, got 'many'"),
        (counted, 2.5, "hint: count with constants that are ints"),
        (filled, np.float32, "not <class 'numpy.float32'>\nhint: write tl.float32"),
        (filled, None, "dtype must be specified"),
        (filled, np.float32(2), "must be a data type such as tl.float32"),
    ],
)
def test_constants_of_other_kinds(kernel, given, said) -> None:
    with pytest.raises(TilewrightError) as caught:
        kernel[(1,)](np.zeros(4, np.float32), given)
    assert said in str(caught.value)


@tilewright.jit
def averages(p):
    tl.store(p, tl.load(p + tl.arange(0, 4)).mean())


@tilewright.jit
def draws(p):
    tl.store(p, tl.random(0, 0))


@tilewright.jit
def converts(p):
    tl.store(p, tl.load(p).astype(tl.float16))


@tilewright.jit
def does_not_call(p):
    tl.store(p + tl.program_id * 4, 1.0)


@tilewright.jit
def asks_a_pointer(p):
    tl.store(p, p.shape[0])


@tilewright.jit
def has_not_imported(p):
    tl.store(p, colorsys.ONE_THIRD)  # noqa: F821


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (averages, "write tl.sum(x, axis) / n"),
        (draws, "write tl.rand(seed, offsets)"),
        (converts, "write x.to(tl.float32)"),
        (does_not_call, "call it: program_id(...)"),
        (asks_a_pointer, "pass sizes as arguments"),
        (has_not_imported, "import colorsys in the module"),
    ],
)
def test_hints_of_a_student(kernel, said) -> None:
    with pytest.raises(TilewrightError) as caught:
        kernel[(1,)](np.zeros(4, np.float32))
    assert said in str(caught.value)


@tilewright.jit
def returns_a_tile(p):
    i = tl.arange(0, 4)
    return tl.load(p + i)  # here


def test_the_return_of_a_kernel_is_pointed_at() -> None:
    with pytest.raises(TilewrightError, match="a kernel returns nothing") as caught:
        returns_a_tile[(1,)](np.zeros(4, np.float32))
    assert "return tl.load(p + i)  # here" in caught.value.location.source_line()


@tilewright.jit
def two_conditions(p, n):
    i = tl.arange(0, 16)
    tl.store(p + i, 1.0, mask=i < n & i > 3)


@tilewright.jit
def between(p, n):
    i = tl.arange(0, 16)
    tl.store(p + i, 1.0, mask=(0 < (i & 7) < n) & (i < 16))


def test_conditions_without_brackets_are_told(recwarn) -> None:
    """`i < n & i > 3` is `i < (n & i) < 3`, in Python as here; NumPy refuses it, as it chains by truth."""
    between[(1,)](np.zeros(16, np.float32), 5)
    assert not [one for one in recwarn if "goes before" in str(one.message)]
    with pytest.warns(UserWarning, match="this compares with n & i; write"):
        two_conditions[(1,)](np.zeros(16, np.float32), 9)


def test_functions_of_the_language_on_the_host() -> None:
    for call in (lambda: tl.sum(np.zeros(4)), lambda: tl.arange(0, 4)):
        with pytest.raises(TilewrightError, match="only inside a @jit kernel") as caught:
            call()
        assert "decorated with @tilewright.jit" in caught.value.hint
    with pytest.raises(TilewrightError) as caught:
        tl.cdiv(5, 2)
    assert "tilewright.cdiv" in caught.value.hint


COMMAND = """
import numpy as np, tilewright, tilewright.language as tl
@tilewright.jit
def one(p):
    tl.store(p, 1.0)
p = np.zeros(1, np.float32)
one[(1,)](p)
assert p[0] == 1
"""


def test_a_kernel_of_a_command() -> None:
    """Before Python 3.13 nobody keeps the text of `python -c`, but its arguments."""
    subprocess.run([sys.executable, "-c", COMMAND], check=True)
    made = subprocess.run([sys.executable, "-"], input=COMMAND, capture_output=True, text=True, check=False)
    assert "reads from a pipe or a prompt" in made.stderr and "site-packages" not in made.stderr
    assert made.stderr.count("  File ") == 1  # of the program alone
