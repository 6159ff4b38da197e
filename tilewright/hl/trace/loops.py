"""Loops over tiles: axes, regions, and the state that they carry from one pass to the next.

What a loop carries is found by running its body: every leaf of the variables that stands for another value afterwards.
The pass that discovers something new is thrown away, and the body runs again with samples in the place of these leaves.
"""

from __future__ import annotations

import ast
from typing import Any

from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Graph, HostTensor, Node, Region, Value
from tilewright.hl.symbols import Sym
from tilewright.hl.trace import carried
from tilewright.hl.trace.messages import type_text
from tilewright.hl.trace.state import Trace, raw_shape
from tilewright.hl.trace.statements import Interpreter
from tilewright.hl.trace.tiles import Range, Tile


def run_loop(interpreter: Interpreter, node: ast.For, items: Range) -> None:
    """Interpret a `for` over `items`."""
    if node.orelse:
        raise exc.DeviceLoopElseBlock("`else` of a loop over tiles", hint="put the statements behind the loop")
    if interpreter.trace.region is None:
        _grid(interpreter, node, items)
    else:
        _inner(interpreter, node, items)


# --- top level -------------------------------------------------------------------------------------------


def _grid(interpreter: Interpreter, node: ast.For, items: Range) -> None:
    trace = interpreter.trace
    if items.kind == "jagged":
        raise exc.InvalidJaggedTileUsage("hl.jagged_tile needs an enclosing tile: it cannot be the outermost loop")
    before = interpreter.variables
    register_hosts(trace, before)
    trace.region = Region()
    try:
        loop, axes = _open(interpreter, node, items, top=True)
        outer = trace.region
        body = trace.region = Region()
        interpreter.assign(node.target, _target(items, axes))
        trace.loops.append(loop)
        interpreter.run(node.body)
        trace.loops.pop()
        loop.regions.append(body)
        outer.nodes.append(loop)
        trace.graphs.append(Graph(outer, trace.axes[:], node.lineno))
    finally:
        trace.region = None
    _forget(interpreter, before)


def _forget(interpreter: Interpreter, before: dict[str, Any]) -> None:
    """Drop the loop's variables; the host's must be what they were."""
    for name, value in interpreter.variables.items():
        if name not in before:
            interpreter.device_names.add(name)
            del interpreter.scope[name]
        elif before[name] is not value:
            raise exc.CannotModifyHostVariableOnDevice(
                f"{name} is a variable of the host and is assigned in a loop over tiles",
                hint="use another name in the loop, or store into a tensor",
            )


def register_hosts(trace: Trace, variables: dict[str, Any]) -> None:
    """Give every tensor that host variables reach its name as an argument of kernels."""
    for path, tensor in carried.tensors(variables):
        if tensor.is_meta and id(tensor) not in trace.hosts:
            name = "_".join(str(part) for part in path)
            trace.hosts[id(tensor)] = _host_tensor(trace, tensor, name, carried.path_text(path))


def _host_tensor(trace: Trace, tensor: Any, name: str, text: str) -> HostTensor:
    shape = tuple(trace.factors.size(extent) for extent in raw_shape(tensor))
    stride: tuple[Any, ...] = tensor.stride()
    if any(isinstance(extent, Sym) for extent in shape):
        stride = tuple(
            1 if step == 1 else trace.host_symbol(f"{name}_stride_{dim}", f"{text}.stride({dim})")
            for dim, step in enumerate(stride)
        )
    return HostTensor(name, text, shape, stride, tensor.dtype)


# --- axes ------------------------------------------------------------------------------------------------


def _names(target: ast.expr, count: int) -> list[str]:
    if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == count:
        return [item.id if isinstance(item, ast.Name) else f"tile_{at}" for at, item in enumerate(target.elts)]
    base = target.id if isinstance(target, ast.Name) else "tile"
    return [base] if count == 1 else [f"{base}_{at}" for at in range(count)]


def _open(interpreter: Interpreter, node: ast.For, items: Range, top: bool) -> tuple[Node, list[Axis]]:
    trace = interpreter.trace
    if isinstance(node.target, ast.Tuple | ast.List) and not items.several:
        raise exc.FailedToUnpackTile(
            f"{len(node.target.elts)} loop variables, and one range", hint="give hl.tile a list of extents"
        )
    names = _names(node.target, len(items.end))
    axes = [
        trace.add_axis(name, items.kind, begin, end, block, top)
        for name, begin, end, block in zip(names, items.begin, items.end, items.block, strict=True)
    ]
    loop = Node("loop", (), {}, node.lineno)
    loop.kwargs = {"axes": axes, "begin": trace.lift(list(items.begin)), "end": trace.lift(list(items.end))}
    return loop, axes


def _target(items: Range, axes: list[Axis]) -> Any:
    made = [Sym.of(axis.offset) if items.kind == "grid" else Tile(axis) for axis in axes]
    return tuple(made) if items.several else made[0]


# --- inner loops -------------------------------------------------------------------------------------------


def _inner(interpreter: Interpreter, node: ast.For, items: Range) -> None:
    trace, scope = interpreter.trace, interpreter.scope
    outer = trace.region
    start = interpreter.variables
    known = trace.carried.setdefault(id(node), set())
    snapshot = trace.snapshot()
    while True:
        scope.update(carried.copied(start))
        body, loop, inits, fresh = _pass(interpreter, node, items, known)
        trace.region = outer
        changed = _changed(interpreter, fresh)
        if changed <= known:
            break
        known |= changed
        trace.restore(snapshot)
        for name in interpreter.variables.keys() - start.keys():
            del scope[name]
    for name, value in start.items():
        if carried.alike(value, scope[name]):
            scope[name] = value  # not a copy of it
    paths = sorted((path for path in known if path in fresh), key=repr)
    _close(interpreter, paths, body, loop, inits)


Fresh = dict[carried.Path, tuple[Any, Value]]


def _pass(
    interpreter: Interpreter, node: ast.For, items: Range, known: set[Any]
) -> tuple[Region, Node, list[Value], Fresh]:
    """Run the body once with samples for the leaves in `known`."""
    trace = interpreter.trace
    loop, axes = _open(interpreter, node, items, top=False)
    body = trace.region = Region()
    inits = []
    present = dict(carried.tensors(interpreter.variables))
    for path in sorted((path for path in known if path in present), key=repr):
        value = trace.value(present[path])
        assert value is not None
        inits.append(value)
        sample = trace.sample(value)
        param = trace.fresh(sample)
        param.name = value.name
        body.params.append(param)
        _put(interpreter, path, sample)
    before = {
        path: (tensor, value)
        for path, tensor in carried.tensors(interpreter.variables)
        if (value := trace.value(tensor)) is not None
    }
    interpreter.assign(node.target, _target(items, axes))
    trace.loops.append(loop)
    interpreter.run(node.body)
    trace.loops.pop()
    return body, loop, inits, before


def _put(interpreter: Interpreter, path: carried.Path, leaf: Any) -> None:
    head, *rest = path
    interpreter.scope[head] = carried.put(interpreter.scope[head], tuple(rest), leaf)


def _changed(interpreter: Interpreter, before: Fresh) -> set[carried.Path]:
    """The leaves that stand for other values than before the body."""
    trace = interpreter.trace
    after = dict(carried.tensors(interpreter.variables))
    return {
        path
        for path, (tensor, value) in before.items()
        if path in after and trace.value(after[path]) is not value and not after[path].is_meta
    }


def _close(interpreter: Interpreter, paths: list[carried.Path], body: Region, loop: Node, inits: list[Value]) -> None:
    """Check what the body carries, and give the variables their values behind the loop."""
    trace = interpreter.trace
    assert trace.region is not None
    after = dict(carried.tensors(interpreter.variables))
    for path, param in zip(paths, body.params, strict=True):
        result = trace.lift(after[path])
        if (param.dims, param.dtype) != (result.dims, result.dtype):
            raise exc.ControlFlowTensorMismatch(
                f"{carried.path_text(path)} is {type_text(trace, param)} before the loop and "
                f"{type_text(trace, result)} after a pass over its body",
                hint="give it its final type and shape before the loop, or convert it back with .to(...)",
            )
        body.results.append(result)
    loop.args, loop.regions = (inits,), [body]
    trace.region.nodes.append(loop)
    for path, param in zip(paths, body.params, strict=True):
        sample = trace.sample(param)
        out = trace.fresh(sample)
        out.name = param.name
        loop.outs.append(out)
        _put(interpreter, path, sample)
