"""Calls of every operation of PyTorch that the tracer knows, from tables and schemas: none is left out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tilewright.hl.rows.files import RECIPES, ROWS
from tilewright.hl.trace.whole import COMPOSITES

CALLS = {  # what a schema does not say
    "_unsafe_view": "(x,[5,12])",
    "addmm": "(y[:,:4],x,y.T)",
    "baddbmm": "(y[None,:,:4],x[None],y.T[None])",
    "bmm": "(x[None],y.T[None])",
    "clamp": "(x,0.2,0.7)",
    "constant_pad_nd": "(x,[1,2])",
    "dot": "(x[0],y[0])",
    "expand": "(x[:,None],[4,3,15])",
    "gather": "(x,1,(x*0).long())",
    "glu": "(x[:,:14],1)",
    "index_select": "(x,1,(x[0]*0).long())",
    "masked_fill": "(x,y>0.5,0.3)",
    "mm": "(x,y.T)",
    "mv": "(x,y[0])",
    "native_group_norm": "(x[:,:,None],None,None,4,15,1,5,1e-5)",
    "native_layer_norm": "(x,[15],None,None,1e-5)",
    "nll_loss_forward": "(x,(x[:,0]*0).long(),None,1,-100)",
    "permute": "(x,[1,0])",
    "repeat": "(x,[2,1])",
    "select_backward": "(x[0],[4,15],0,2)",
    "slice_backward": "(x,[9,15],0,2,6,1)",
    "soft_margin_loss": "(x,y.detach())",
    "split_with_sizes": "(x,[1,3])",
    "unflatten": "(x,1,[3,5])",
    "view": "(x,[5,12])",
    "where": "(x>y,x,y)",
    "_reshape_alias": "(x,[5,12],[12,1])",
    "_to_copy": "(x)",
    "_log_softmax_backward_data": "(x,y,1,torch.float64)",
    "_softmax_backward_data": "(x,y,1,torch.float64)",
    "max": "(x,1)",
    "min": "(x,1)",
    "pow": "(x,2.5)",
    "topk": "(x,3)",
    "polygamma": "(1,x+1)",  # hl is as far from PyTorch as the 9th digit
    "kthvalue": "(x,3)",
    "unbind": "(x,0)",
}
INTEGERS = {"bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor"}
CONSTANTS = """
arange empty empty_like eye full full_like linspace new_empty new_full new_ones new_zeros ones ones_like
scalar_tensor zeros zeros_like
""".split()
"""Operations whose results do not depend on what they are given."""
BESIDES = ("log_sigmoid_forward", "native_group_norm", "native_layer_norm", "nll_loss_forward")
"""Operations whose other results are for PyTorch's derivative, which ignores their gradients."""
DRAWN = ("bernoulli", "rand", "rand_like", "randn", "randn_like")


def _argument(kind: str, at: int) -> str:
    if kind == "Tensor":
        return "xy"[min(at, 1)]
    known = {"List[Tensor]": "[x,y]", "number": "0.5", "Optional[number]": "0.5", "int": "1", "List[int]": "[1]"}
    return {**known, "float": "0.5", "bool": "False"}.get(kind, "None")


def _from_schemas(name: str) -> Iterator[str]:
    """Calls with the required arguments of each overload."""
    packet = getattr(torch.ops.aten, name)
    for overload in packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        if any(argument.is_out or argument.name == "names" for argument in arguments):  # of named tensors
            continue
        parts: list[str] = []
        for argument in arguments:
            if not argument.has_default_value():
                made = _argument(str(argument.type), sum(part in ("x", "y") for part in parts))
                parts.append(f"{argument.name}={made}" if argument.kwarg_only else made)
        yield f"({','.join(parts)})"


def is_cut(text: str) -> bool:
    """Whether PyTorch has no derivative of a call, and says nothing."""
    if text.removeprefix("torch.ops.aten.").split("(")[0] in CONSTANTS:
        return False
    x, y = (torch.rand(4, 15, dtype=torch.float64, requires_grad=True) for _ in range(2))
    return not eval(text, {"torch": torch, "x": x, "y": y}).requires_grad


def _results(text: str) -> Any:
    """What PyTorch makes of a call; None where it refuses the arguments."""
    x, y = (torch.rand(4, 15, dtype=torch.float64) for _ in range(2))
    try:
        return eval(text, {"torch": torch, "x": x, "y": y})
    except (RuntimeError, TypeError, IndexError, NotImplementedError):
        return None


def calls() -> list[str]:
    """An expression for each floating-point result of each operation, but for random ones and those of integers."""
    names = [name for name in sorted({*ROWS, *RECIPES} | COMPOSITES) if hasattr(torch.ops.aten, name)]
    made = []
    for name in names:
        if name in INTEGERS or name in DRAWN:
            continue
        texts = [CALLS[name]] if name in CALLS else _from_schemas(name)
        found = ((f"torch.ops.aten.{name}{text}", _results(f"torch.ops.aten.{name}{text}")) for text in texts)
        text, results = next(((text, out) for text, out in found if out is not None), ("", None))
        assert text, f"what arguments has {name}? CALLS says it where its schema does not"
        if isinstance(results, torch.Tensor):
            made += [text] if results.is_floating_point() else []
        elif isinstance(results, tuple | list):
            alike = len({out.shape for out in results}) == 1 and len(results) > 2
            floats = [at for at, out in enumerate(results) if out.is_floating_point() and out.numel()]
            made += [f"{text}[{at}]" for at in (floats[:1] if alike or name in BESIDES else floats)]
    return made
