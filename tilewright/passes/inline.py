"""Inlining: replace each `tt.call` of a function that allows it by the function's body.

Operations keep the place they come from; the call's own place becomes its caller, so that
an error or a line table still shows the whole chain.
"""

from __future__ import annotations

from xdsl.dialects.builtin import CallSiteLoc, ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.base.errors import InternalError
from tilewright.ir.walk import every, walk
from tilewright.ops.function import CallOp, FuncOp, ReturnOp
from tilewright.passes.rewriting import erase


def inline_calls(module: ModuleOp) -> bool:
    """Inline every call whose callee is not `noinline`, then drop private functions that nobody calls."""
    functions = {op.symbol: op for op in FuncOp.all_of(module)}
    changed = False
    pending = every(module, CallOp)
    while pending:
        call = pending.pop()
        callee = functions.get(call.callee_name)
        if callee is None:
            raise InternalError(f"call of an unknown function @{call.callee_name}")
        if not callee.noinline:
            pending.extend(_inline_one(call, callee))
            changed = True
    return _drop_uncalled(module, functions) or changed


def _inline_one(call: CallOp, callee: FuncOp) -> list[CallOp]:
    """Clone the callee's body before `call`; returns the calls that came with it."""
    block, body = call.parent_block(), callee.body.block
    assert block is not None
    mapping: dict[SSAValue, SSAValue] = dict(zip(body.args, call.operands, strict=True))
    nested: list[CallOp] = []
    for op in body.ops:
        if isinstance(op, ReturnOp):
            for result, value in zip(call.results, op.operands, strict=True):
                result.replace_all_uses_with(mapping.get(value, value))
            break
        clone = op.clone(mapping)
        _chain_locations(op, clone, call)
        block.insert_op_before(clone, call)
        nested.extend(inner for inner in every(clone, CallOp))
    erase(call)
    return nested


def _chain_locations(source: Operation, clone: Operation, call: CallOp) -> None:
    for old, new in zip(walk(source), walk(clone), strict=True):
        if old.location is not None and call.location is not None:
            new.location = CallSiteLoc(old.location, call.location)


def _drop_uncalled(module: ModuleOp, functions: dict[str, FuncOp]) -> bool:
    called = {op.callee_name for op in every(module, CallOp)}
    dead = [f for name, f in functions.items() if name not in called and not f.is_kernel]
    for function in dead:
        erase(function)
    return bool(dead)
