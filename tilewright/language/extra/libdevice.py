"""The `tl.extra.libdevice` namespace: the functions of NVIDIA's libdevice, on every target that can compute them.

A function takes exactly the element types of its row below; nothing is promoted. NVIDIA GPUs call the library's
symbol. Elsewhere, what has a mathematical operation is that operation, what can be composed is written in the language
(`libdevice_functions.py`, `special.py`, `bessel.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base import dtypes
from tilewright.base.dtypes import with_shape_of
from tilewright.base.errors import DTypeError, UnsupportedError
from tilewright.base.lazy import lazy_module
from tilewright.language.extern import extern_call
from tilewright.ops.broadcast import broadcast_tensors
from tilewright.ops.builtin import Builtin, Emitter, to_tensor
from tilewright.ops.casts import bitcast_to, cast_to
from tilewright.ops.functions.target import is_cuda
from tilewright.ops.math import OPS
from tilewright.ops.values import tensor

if TYPE_CHECKING:
    from tilewright.language.extra import bessel, special
    from tilewright.language.extra import libdevice_functions as functions
else:  # the first kernel that calls one of their functions loads them
    functions = lazy_module("tilewright.language.extra.libdevice_functions")
    special = lazy_module("tilewright.language.extra.special")
    bessel = lazy_module("tilewright.language.extra.bessel")

_LETTERS = {
    "b": dtypes.int1, "i": dtypes.int32, "I": dtypes.uint32, "l": dtypes.int64, "L": dtypes.uint64,
    "f": dtypes.float32, "d": dtypes.float64,
}  # fmt: skip
_MODES = ("rn", "rz", "rd", "ru")

# Element types of the operands > element type of the result, by the letters above.
_ROWS = {
    "f>f d>d": """
        rsqrt sqrt cbrt rcbrt exp exp2 exp10 expm1 log log2 log10 log1p logb sin cos tan sinpi cospi asin acos atan sinh
        cosh tanh asinh acosh atanh erf erfc erfcx erfinv erfcinv normcdf normcdfinv lgamma tgamma j0 j1 y0 y1
        cyl_bessel_i0 cyl_bessel_i1 floor ceil trunc rint nearbyint round rcp_rn rcp_rz rcp_rd rcp_ru sqrt_rn sqrt_rz
        sqrt_rd sqrt_ru""",
    "i>i l>l f>f d>d": "abs",
    "ff>f dd>d": """
        hypot rhypot atan2 copysign nextafter fdim fmod remainder add_rn add_rz add_rd add_ru sub_rn sub_rz sub_rd
        sub_ru mul_rn mul_rz mul_rd mul_ru div_rn div_rz div_rd div_ru""",
    "fff>f ddd>d": "norm3d rnorm3d fma fma_rn fma_rz fma_rd fma_ru",
    "ffff>f dddd>d": "norm4d rnorm4d",
    "f>f": """
        saturatef rsqrt_rn fast_sinf fast_cosf fast_tanf fast_tanhf fast_expf fast_exp10f fast_logf fast_log2f
        fast_log10f""",
    "ff>f": "fast_powf fast_dividef",
    "ff>f fi>f dd>d di>d": "pow",
    "fi>f di>d": "ldexp scalbn",
    "if>f id>d": "jn yn",
    "f>i d>i": "ilogb signbit",
    "f>i": "finitef float_as_int float_as_uint float2int_rn float2int_rz float2int_rd float2int_ru float2uint_rn "
    "float2uint_rz float2uint_rd float2uint_ru",
    "d>i": "isfinited double2loint double2hiint double2int_rn double2int_rz double2int_rd double2int_ru double2uint_rn "
    "double2uint_rz double2uint_rd double2uint_ru",
    "f>b d>b": "isnan isinf",
    "f>l d>l": "llrint llround",
    "f>l": "float2ll_rn float2ll_rz float2ll_rd float2ll_ru float2ull_rn float2ull_rz float2ull_rd float2ull_ru",
    "d>l": "double_as_longlong double2ll_rn double2ll_rz double2ll_rd double2ll_ru double2ull_rn double2ull_rz "
    "double2ull_rd double2ull_ru",
    "d>f": "double2float_rn double2float_rz double2float_rd double2float_ru",
    "d>d": "rcp64h",
    "i>f": "int_as_float int2float_rn int2float_rz int2float_rd int2float_ru",
    "I>f": "uint_as_float uint2float_rn uint2float_rz uint2float_rd uint2float_ru",
    "i>d": "int2double_rn",
    "I>d": "uint2double_rn",
    "l>f": "ll2float_rn ll2float_rz ll2float_rd ll2float_ru",
    "L>f": "ull2float_rn ull2float_rz ull2float_rd ull2float_ru",
    "l>d": "longlong_as_double ll2double_rn ll2double_rz ll2double_rd ll2double_ru",
    "L>d": "ull2double_rn ull2double_rz ull2double_rd ull2double_ru",
    "ii>d": "hiloint2double",
    "i>i l>i": "clz popc ffs",
    "i>i l>l": "brev",
    "iii>i": "byte_perm",
    "ii>i II>I ll>l LL>L": "mulhi",
    "ii>i II>I": "mul24 hadd rhadd",
    "iiI>I III>I": "sad",
}

CASES: dict[str, str] = {name: cases for cases, names in _ROWS.items() for name in names.split()}
"""Signatures of each function: a row's text."""

# Functions that are one operation of the language, by another name or the same.
_OPERATIONS = {name: name for name in OPS} | {
    "pow": "powf", "rint": "roundeven", "nearbyint": "roundeven", "sqrt_rn": "sqrt", "fast_sinf": "sin",
    "fast_cosf": "cos", "fast_tanf": "tan", "fast_tanhf": "tanh", "fast_expf": "exp", "fast_logf": "log",
    "fast_log2f": "log2", "fast_log10f": "log10", "fast_powf": "powf",
}  # fmt: skip
_BITCASTS = (
    "float_as_int",
    "float_as_uint",
    "int_as_float",
    "uint_as_float",
    "double_as_longlong",
    "longlong_as_double",
)
REFUSED: dict[str, str] = {"rcp64h": "the estimate of one GPU's reciprocal unit; divide instead"}

Compute = Callable[..., tensor]


# --- symbols of the library ---------------------------------------------------------------------------------------

# Symbols that are not made of the name by rule: by the types of the operands, or that of the first.
_SYMBOLS: dict[str, dict[str, str]] = {
    "abs": {"i": "abs", "l": "llabs", "f": "fabsf", "d": "fabs"},
    "mulhi": {"i": "mulhi", "I": "umulhi", "l": "mul64hi", "L": "umul64hi"},
    "pow": {"ff": "powf", "fi": "powif", "dd": "pow", "di": "powi"},
    "fast_dividef": {"f": "fast_fdividef"},
    **{name: {"i": name, "l": f"{name}ll"} for name in ("clz", "popc", "ffs", "brev")},
    **{name: {"i": name, "I": f"u{name}"} for name in ("mul24", "hadd", "rhadd", "sad")},
    **{name: {"f": f"{name}f", "d": f"{name}d"} for name in ("isnan", "isinf", "signbit")},
}
_DIRECTED = ("add", "sub", "mul", "div", "rcp", "sqrt", "rsqrt")


def symbol_of(name: str, letters: str) -> str:
    """Symbol in NVIDIA's library of the function `name` on operands of these types ("ff": two float32).

    Functions that exist for both widths end in "f" for float32; those with a rounding mode start with the type.
    """
    stem, _, mode = name.rpartition("_")
    if name in _SYMBOLS:
        rows = _SYMBOLS[name]
        return f"__nv_{rows.get(letters) or rows[letters[0]]}"
    if mode in _MODES and stem in _DIRECTED:
        return f"__nv_{letters[0]}{name}"
    both = all(any(kind in case.partition(">")[0] for case in CASES[name].split()) for kind in "fd")
    single = "f" if both and "f" in letters else ""
    return f"__nv_{stem}{single}_{mode}" if mode in _MODES and stem == "fma" else f"__nv_{name}{single}"


def _call(b: Emitter, name: str, result: Any, operands: list[tensor]) -> tensor:
    """The library's function; what it says as a number and the table as a bool is compared with zero."""
    of = {element: letter for letter, element in _LETTERS.items()}
    symbol = symbol_of(name, "".join(of[operand.dtype] for operand in operands))
    flag = result.scalar.is_bool()
    made = with_shape_of(result, dtypes.int32) if flag else result
    value = extern_call(b, made, operands, libname="", libpath="", symbol=symbol, pure=True)
    return cast_to(b, value, dtypes.int1) if flag else value


# --- portable forms -----------------------------------------------------------------------------------------------


@functools.cache  # rows of functions share one text
def _signatures(text: str) -> Mapping[tuple[dtypes.dtype, ...], dtypes.dtype]:
    """Operand types to result type."""
    pairs = [case.split(">") for case in text.split()]
    return {tuple(_LETTERS[letter] for letter in operands): _LETTERS[result] for operands, result in pairs}


@functools.cache
def _spoken(text: str) -> str:
    """Signatures for people: "(fp32) -> fp32, (fp64) -> fp64"."""
    return ", ".join(f"({', '.join(map(str, operands))}) -> {made}" for operands, made in _signatures(text).items())


def _compute(name: str) -> Compute | None:
    """How `name` is computed from checked operands: ``f(b, result type, *operands)``; None if it is refused."""
    operation = _OPERATIONS.get(name)
    if name in REFUSED:
        return None
    if operation is not None:
        return lambda b, result, *xs: b.emit(OPS[operation], result, *[cast_to(b, x, result.scalar) for x in xs])
    if name in _BITCASTS:
        return lambda b, result, x: bitcast_to(b, x, result.scalar)
    return lambda b, result, *xs: _call_written(b, name, xs)


def _call_written(b: Emitter, name: str, operands: Sequence[tensor]) -> tensor:
    """Call the function that is written in the language: of this name, or of its stem with a rounding mode."""
    written = next(filter(None, (getattr(room, name, None) for room in (functions, special, bessel))), None)
    if written is not None:
        made: tensor = b.call(written, operands)
        return made
    stem, _, mode = name.rpartition("_")
    directed: tensor = b.call(getattr(functions, stem), [*operands, mode, *_target(stem)])
    return directed


def _target(stem: str) -> tuple[dtypes.dtype, ...]:
    """The type to which a conversion ("float2uint", "ll2double") goes; nothing for arithmetic."""
    return _TARGETS[stem.partition("2")[2]]


_TARGETS: dict[str, tuple[dtypes.dtype, ...]] = {
    "": (), "int": (dtypes.int32,), "uint": (dtypes.uint32,), "ll": (dtypes.int64,), "ull": (dtypes.uint64,),
    "float": (dtypes.float32,), "double": (dtypes.float64,),
}  # fmt: skip


def _function(name: str, cases: str) -> Builtin:
    table, compute = _signatures(cases), _compute(name)
    free = name in _BITCASTS  # the same bits everywhere
    text = _spoken(cases)

    def function(b: Emitter, *args: Any) -> tensor:
        on_gpu = is_cuda(b.target) and not free
        if compute is None and not on_gpu:
            raise UnsupportedError(
                f"libdevice function {name} is not available on {b.target.backend}: {REFUSED[name]}",
                hint="compute it on the host, or from functions that are there",
            )
        operands = [to_tensor(b, arg) for arg in args]
        types = tuple(operand.dtype for operand in operands)
        if types not in table:
            raise DTypeError(
                f"input arg type does not match. libdevice.{name} takes {text}; got ({', '.join(map(str, types))})",
                hint="convert the arguments with .to(...); libdevice functions promote nothing",
            )
        operands = list(broadcast_tensors(b, *operands))
        result = with_shape_of(operands[0].type, table[types])
        if on_gpu:
            return _call(b, name, result, operands)
        assert compute is not None
        made = compute(b, result, *operands)
        return bitcast_to(b, made, result.scalar) if made.type != result and made.dtype.is_int() else made

    function.__name__ = function.__qualname__ = name
    state = f" Refused: {REFUSED[name]}." if name in REFUSED else ""
    function.__doc__ = f"libdevice's `{name}`: {text}.{state}"
    return Builtin(function)


FUNCTIONS: dict[str, Builtin] = {name: _function(name, cases) for name, cases in CASES.items()}
globals().update(FUNCTIONS)
__all__ = list(FUNCTIONS)
