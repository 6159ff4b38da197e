"""`if` and `while` over values of the device.

Both arms of an `if` run, each from the same state; a variable that they leave with different values becomes a result
of the branch. What a `while` carries is found as for loops.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.dims import cut_atom
from tilewright.hl.graph.nodes import Node, Region, Value
from tilewright.hl.rows.shapes import several_elements
from tilewright.hl.symbols import ConfiguredTruth, Sym, same
from tilewright.hl.trace import aliases, carried
from tilewright.hl.trace.equal import equate_dims
from tilewright.hl.trace.loops import carry
from tilewright.hl.trace.messages import type_text
from tilewright.hl.trace.state import Trace
from tilewright.hl.trace.statements import Interpreter


@dataclass
class _Arm:
    """What an arm leaves: its region, the variables, and the value of every tensor among them."""

    region: Region
    variables: dict[str, Any]
    values: dict[carried.Path, Value]


def run_if(interpreter: Interpreter, node: ast.If, test: Any) -> None:
    """Interpret an `if` whose condition is known when the kernel runs."""
    test = test != 0 if isinstance(test, Sym) else test.on_device() if isinstance(test, ConfiguredTruth) else test
    if isinstance(test, torch.Tensor):
        branch(interpreter, node.lineno, test, [partial(interpreter.run, arm) for arm in (node.body, node.orelse)])
    else:
        interpreter.run(node.body if test else node.orelse)


def branch(interpreter: Interpreter, line: int, test: Any, bodies: Sequence[Callable[[], None]]) -> Node:
    """Record a branch, whose node is the last of its region then.

    Args:
        interpreter: whose variables the arms change.
        line: line of the user's file.
        test: the condition.
        bodies: run what is to be done where it holds, and where it does not.
    """
    trace = interpreter.trace
    outer = trace.region
    assert outer is not None
    made = Node("if", (condition(trace, test),), {}, line)
    start, bindings = interpreter.variables, trace.bindings()
    arms = []
    for body in bodies:
        interpreter.rebind(carried.copied(start))
        trace.rebind(bindings)
        trace.region = Region()
        interpreter.decided += 1
        body()
        interpreter.decided -= 1
        variables = interpreter.variables
        values = {path: trace.lift(leaf) for path, leaf in carried.tensors(variables) if not leaf.is_meta}
        arms.append(_Arm(trace.region, variables, values))
        trace.region = outer
    trace.rebind(bindings)
    outer.nodes.append(made)
    made.regions = [arm.region for arm in arms]
    interpreter.rebind(_merged(interpreter, made, arms))
    for name, value in start.items():
        if name in interpreter.scope and carried.alike(value, interpreter.scope[name]):
            interpreter.scope[name] = value
    return made


def condition(trace: Trace, test: Any) -> Value:
    """The value that decides a branch: of a tile, the one that configurations with a block size of 1 have.

    Raises:
        ControlFlowTensorMismatch: it has more than one element.
    """
    value = trace.lift(test if test.dtype == torch.bool else test != 0)
    if not isinstance(value, Value):
        raise several_elements(repr(value))
    if all(dim.is_one for dim in value.dims):
        return value
    if not all(dim.is_one or (dim.atom is not None and cut_atom(dim.atom).kind == "block") for dim in value.dims):
        raise several_elements(type_text(trace, value))
    with trace.silence():
        sample = torch.full((), True)
    found = trace.value(trace.record("sole", (value, type_text(trace, value)), sample))
    assert found is not None
    return found


def _merged(interpreter: Interpreter, node: Node, arms: list[_Arm]) -> dict[str, Any]:
    """The variables behind a branch: those that both arms have, joined leaf by leaf."""
    left, right = arms
    merged = {}
    joined: dict[tuple[int, int], Any] = {}  # names of one tensor in both arms stay that
    for name in left.variables.keys() & right.variables.keys():
        ours = dict(carried.leaves(left.variables[name], (name,)))
        theirs = dict(carried.leaves(right.variables[name], (name,)))
        if ours.keys() != theirs.keys():
            interpreter.one_arm.add(name)
            continue
        tree = left.variables[name]
        for path in ours:
            pair = id(ours[path]), id(theirs[path])
            leaf = joined.get(pair)
            if leaf is None:
                leaf = _leaf(interpreter.trace, node, arms, path, ours[path], theirs[path])
            if isinstance(leaf, torch.Tensor):
                joined[pair] = leaf
            tree = carried.put(tree, path[1:], leaf)
        merged[name] = tree
    left_names, right_names = (aliases.partners(carried.leaves(arm.variables)) for arm in arms)
    apart = aliases.parted(left_names, right_names)
    aliases.keep_apart(interpreter.trace, carried.leaves(merged), apart)
    interpreter.one_arm |= left.variables.keys() ^ right.variables.keys()
    return merged


def _leaf(trace: Trace, node: Node, arms: list[_Arm], path: carried.Path, ours: Any, theirs: Any) -> Any:
    """What one leaf is behind a branch."""
    values = [arm.values.get(path) for arm in arms]
    if values[0] is values[1] and (ours is theirs or values[0] is not None):
        return ours
    if isinstance(ours, Sym) and isinstance(theirs, Sym) and same(ours, theirs):
        return ours
    if type(ours) is type(theirs) and not isinstance(ours, torch.Tensor | Sym) and ours == theirs:
        return ours
    if {type(ours), type(theirs)} == {int, float}:
        ours, theirs = float(ours), float(theirs)
    pair = [
        _in_arm(trace, arm.region, leaf, value, other)
        for arm, leaf, value, other in zip(arms, (ours, theirs), values, values[::-1], strict=True)
    ]
    cut = [tuple(dim.cut for dim in value.dims) for value in pair]
    equate_dims(trace, *cut)
    if cut[0] != cut[1] or pair[0].dtype != pair[1].dtype:
        raise exc.ControlFlowTensorMismatch(
            f"{carried.path_text(path)} is {type_text(trace, pair[0])} where the condition holds and "
            f"{type_text(trace, pair[1])} where it does not",
            hint="give it one type and shape in both branches",
        )
    for arm, value in zip(arms, pair, strict=True):
        arm.region.results.append(value)
    sample = trace.sample(pair[0])
    out = trace.fresh(sample, pair[0].dims if pair[0].dims == pair[1].dims else cut[0])
    out.name = pair[0].name or pair[1].name
    node.outs.append(out)
    aliases.keep_like(trace, sample, ours, theirs)
    return sample


def _in_arm(trace: Trace, region: Region, leaf: Any, value: Value | None, other: Value | None) -> Value:
    """The value of a leaf; numbers become values in their arm, such as the other arm has where they can be."""
    if value is not None:
        return value
    if isinstance(leaf, bool | int | float):
        outer, trace.region = trace.region, region
        made = trace.number(leaf) if other is None else _like(trace, leaf, other)
        trace.region = outer
        found = trace.value(made)
        assert found is not None
        return found
    raise exc.CantCombineTypesInControlFlow(
        f"a variable of type {type(leaf).__name__} differs between the branches",
        hint="only tiles and numbers may depend on values of tiles",
    )


def _like(trace: Trace, number: Any, other: Value) -> Any:
    """A number as a value of the type of another one, which it takes beside it anyway, and of its shape."""
    kind = complex if other.dtype.is_complex else float if other.dtype.is_floating_point else int
    fits = other.dtype == torch.bool if isinstance(number, bool) else other.dtype != torch.bool
    if not fits or (isinstance(number, float) and kind is int):
        return trace.number(number)
    if isinstance(number, Sym):
        return trace.scalar(number).to(other.dtype).expand(trace.sample(other).shape)
    return trace.record("full", (number,), trace.sample(other))


# --- while -----------------------------------------------------------------------------------------------


def run_while(interpreter: Interpreter, node: ast.While) -> None:
    """Interpret a `while` whose condition is known when the kernel runs."""
    if node.orelse:
        raise exc.DeviceLoopElseBlock("`else` of a loop on values of tiles", hint="put the statements after the loop")
    trace = interpreter.trace
    tests: list[Region] = []
    inside = interpreter.begin(node)

    def body() -> Node:
        region = trace.region
        test = trace.region = Region()
        trace.line = node.lineno
        result = interpreter.evaluate(node.test, test=True)
        left = interpreter.scope.get(inside.flag, False)
        test.results = [condition(trace, (result != 0) & ~left if isinstance(left, torch.Tensor) else result)]
        tests.append(test)
        trace.region = region
        trace.repeats, interpreter.decided = trace.repeats + 1, interpreter.decided + 1
        interpreter.run(inside.statements)
        trace.repeats, interpreter.decided = trace.repeats - 1, interpreter.decided - 1
        return Node("while", (), {}, node.lineno)

    loop = carry(interpreter, node, body)
    interpreter.end(inside, [])
    loop.regions = [tests[-1], *loop.regions]
