"""Loops over tiles: axes, regions, and the state that they carry from one pass to the next.

What a loop carries is found by running its body: every leaf of the variables that stands for another value afterwards.
The pass that discovers something new is thrown away, and the body runs again with samples in the place of these leaves.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Graph, HostTensor, Node, Region, Value, has_effect
from tilewright.hl.rows.dtypes import held
from tilewright.hl.symbols import Sym, same, substitute
from tilewright.hl.trace import aliases, carried
from tilewright.hl.trace.arguments import strides_of
from tilewright.hl.trace.equal import equate_dims
from tilewright.hl.trace.even import hold_even
from tilewright.hl.trace.kept import is_cut, keep
from tilewright.hl.trace.messages import type_text
from tilewright.hl.trace.numbers import Number
from tilewright.hl.trace.offsets import is_wide, range_is_wide
from tilewright.hl.trace.state import Trace, raw_shape
from tilewright.hl.trace.statements import Interpreter
from tilewright.hl.trace.tiles import Dividing, Range, Tile
from tilewright.hl.trace.unchanged import Outside


def run_loop(interpreter: Interpreter, node: ast.For, items: Range) -> None:
    """Interpret a `for` over `items`."""
    if node.orelse:
        raise exc.DeviceLoopElseBlock("`else` of a loop over tiles", hint="put the statements after the loop")
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
    outside = Outside(interpreter, node)
    register_hosts(trace, before)
    trace.region = Region()
    try:
        loop, axes = _open(interpreter, node, items, _bounds(trace, items), top=True)
        outer = trace.region
        body = trace.region = Region()
        interpreter.assign(node.target, _target(items, axes))
        trace.loops.append(loop)
        interpreter.run(_of_grid(interpreter, node))
        trace.loops.pop()
        loop.regions.append(body)
        outer.nodes.append(loop)
        trace.graphs.append(Graph(outer, trace.axes[:], node.lineno))
    finally:
        trace.region = None
    outside.check()
    if not has_effect(loop):
        raise exc.EmptyDeviceLoopAfterDCE(
            "nothing in this loop has an effect", hint="store the result into a tensor of the host: out[tile] = ..."
        )


def _of_grid(interpreter: Interpreter, node: ast.For) -> list[ast.stmt]:
    """The body of a grid, which nothing can leave: its tiles run beside each other."""
    body = interpreter.source.body(node)
    if body.flag:
        raise exc.NotAllowedOnDevice(
            "`break` out of the grid: its tiles run beside each other, and none is the last",
            hint="skip the tiles that have nothing to do with `continue`",
        )
    return body.statements


def register_hosts(trace: Trace, variables: dict[str, Any]) -> None:
    """Give every tensor that host variables reach its name as an argument of kernels."""
    for path, tensor in carried.tensors(variables):
        if tensor.is_meta and id(tensor) not in trace.hosts:
            name = "_".join(str(part) for part in path)
            trace.hosts[id(tensor)] = _host_tensor(trace, tensor, name, carried.path_text(path))


def _host_tensor(trace: Trace, tensor: torch.Tensor, name: str, text: str) -> HostTensor:
    shape = tuple(trace.factors.size(extent) for extent in raw_shape(tensor))
    stride = strides_of(trace, tensor, name, text)
    return HostTensor(name, text, shape, stride, held(tensor.dtype), is_wide(trace, text, shape))


# --- axes ------------------------------------------------------------------------------------------------


def _names(target: ast.expr, count: int) -> list[str]:
    if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == count:
        return [item.id if isinstance(item, ast.Name) else f"tile_{at}" for at, item in enumerate(target.elts)]
    base = target.id if isinstance(target, ast.Name) else "tile"
    return [base] if count == 1 else [f"{base}_{at}" for at in range(count)]


def _bounds(trace: Trace, items: Range) -> tuple[list[Any], list[Any]]:
    """The bounds of a loop as the graph holds them; a jagged one runs to the end of its longest lane."""
    ends = [torch.amax(items.end[0])] if items.kind == "jagged" else list(items.end)
    return trace.lift(list(items.begin)), trace.lift(ends)


def _open(
    interpreter: Interpreter, node: ast.For, items: Range, bounds: tuple[list[Any], list[Any]], top: bool
) -> tuple[Node, list[Axis]]:
    trace = interpreter.trace
    if isinstance(node.target, ast.Tuple | ast.List) and not items.several:
        raise exc.FailedToUnpackTile(
            f"{len(node.target.elts)} loop variables, and one range", hint="give hl.tile a list of extents"
        )
    names = _names(node.target, len(items.end))
    begins, ends = bounds
    axes: list[Axis] = []
    for at, name in enumerate(names):
        given = items.block[at]
        within = given.size if isinstance(given, Dividing) else 0
        axis = trace.add_axis(
            name, items.kind, begins[at], ends[at], None if within else _block(trace, name, given), top
        )
        axis.within = within
        if axis.shared is not None and (trace.axis_of(axis.size) or any(axis.size == one.size for one in axes)):
            raise exc.NestedDeviceLoopsConflict(
                f"{name} has the block size of a loop around it: tiles of the two could not be told apart",
                hint="call hl.register_block_size once for each of the loops",
            )
        axis.wide = range_is_wide(trace, items.end[at])
        axis.parent = trace.lift(items.end[at]) if items.kind == "jagged" else None
        axis.backward = items.backward and not top  # the tiles of a grid have no order
        trace.bounds[axis.id] = items.begin[at], items.end[at]
        hold_even(trace, axis)
        axes.append(axis)
    return Node("loop", (), {"axes": axes, "begin": begins, "end": ends}, node.lineno), axes


def _block(trace: Trace, name: str, block: Any) -> Any:
    """A block size without numbers of the host: they become constants, of which calls bind anew.

    Raises:
        IncorrectTileUsage: it is known only when the kernel runs.
    """
    for atom in list(block.atoms()) if isinstance(block, Sym) else ():
        if atom.kind == "host":
            number = trace.decide(Sym.of(atom))
            block = substitute(block, {atom: number}.get)
        elif atom.kind not in ("block", "tunable", "op"):
            raise exc.IncorrectTileUsage(
                f"the block size of {name} is {block!r}, which is known only when the kernel runs",
                hint="let the configuration choose it with block_size=None, and bound the loop instead",
            )
    return block


def _target(items: Range, axes: list[Axis]) -> Any:
    made: list[Any] = [Sym.of(axis.offset) if items.kind == "grid" else Tile(axis) for axis in axes]
    if items.places:
        made = [number * step + begin for number, (begin, step) in zip(made, items.places, strict=True)]
    return tuple(made) if items.several else made[0]


# --- inner loops -------------------------------------------------------------------------------------------


def _inner(interpreter: Interpreter, node: ast.For, items: Range) -> None:
    bounds = _bounds(interpreter.trace, items)
    inside = interpreter.begin(node)

    def body() -> Node:
        loop, axes = _open(interpreter, node, items, bounds, top=False)
        interpreter.assign(node.target, _target(items, axes))
        interpreter.trace.loops.append(loop)
        interpreter.run(inside.statements)
        interpreter.trace.loops.pop()
        return loop

    carry(interpreter, node, body)
    interpreter.end(inside, [])


Before = dict[carried.Path, Any]


@dataclass(frozen=True)
class _Carried:
    """One value that a loop carries.

    Args:
        paths: the leaves that are it; several are names of one tensor, of which a change in place is seen by all.
        init: its value before the loop.
        param: what stands for it in a pass.
    """

    paths: tuple[carried.Path, ...]
    init: Value
    param: Value


def carry(interpreter: Interpreter, node: ast.stmt, body: Callable[[], Node]) -> Node:
    """Record a loop: run `body`, which makes its node, until what it carries is known.

    Args:
        interpreter: whose variables are the state.
        node: the statement; what it was found to carry is remembered for later passes and traces.
        body: interprets the statements of the loop once.
    """
    trace = interpreter.trace
    outer = trace.region
    assert outer is not None
    start = interpreter.variables
    known = interpreter.source.carried.setdefault(id(node), set())
    snapshot, length = trace.snapshot(), len(outer.nodes)
    around = interpreter.carrying
    parted: set[carried.Path] = set()
    entering = aliases.partners(carried.leaves(start))
    while True:
        interpreter.carrying = around | known
        interpreter.rebind(carried.copied(start))
        trace.region = outer
        through, region = _enter(interpreter, known, parted)
        before = _state(interpreter)
        loop = body()
        changed = _changed(before, _state(interpreter))
        apart = aliases.parted(entering, aliases.partners(carried.leaves(interpreter.variables)))
        trace.region = outer
        if changed <= known and apart <= parted:
            break
        known |= changed
        parted |= apart
        trace.restore(snapshot)
        del outer.nodes[length:]
    interpreter.carrying = around
    for name, value in start.items():
        if name in interpreter.scope and carried.alike(value, interpreter.scope[name]):
            interpreter.scope[name] = value  # not a copy of it
    _close(interpreter, region, loop, through)
    aliases.keep_apart(trace, carried.leaves(interpreter.variables), parted)
    for name in interpreter.variables.keys() - start.keys():  # they have no value where no pass ran
        interpreter.in_passes.add(name)
        del interpreter.scope[name]
    return loop


def _enter(
    interpreter: Interpreter, known: set[carried.Path], parted: set[carried.Path]
) -> tuple[list[_Carried], Region]:
    """Open a region whose parameters stand for the leaves in `known`: one for all names of a tensor, but for those in
    `parted`."""
    trace = interpreter.trace
    present = dict(carried.leaves(interpreter.variables))
    names = aliases.partners((path, leaf) for path, leaf in present.items() if path not in parted)
    groups: dict[carried.Path, list[carried.Path]] = {}
    for path in sorted((path for path in known if path in present), key=repr):
        several = sorted(names.get(path, {path}), key=repr)
        groups.setdefault(several[0], several)
    inits = []
    for paths in groups.values():
        leaf = present[paths[0]]
        value = trace.lift(leaf if isinstance(leaf, torch.Tensor) else trace.number(leaf))
        inits.append(value if isinstance(value, Value) else trace.lift(trace.number(value)))
    region = trace.region = Region()
    through = []
    for paths, value in zip(groups.values(), inits, strict=True):
        sample = trace.sample(value)
        param = trace.fresh(sample, value.dims)
        param.name = value.name or str(paths[0][0])
        region.params.append(param)
        for path in paths:
            _put(interpreter, path, sample)
        through.append(_Carried(tuple(paths), value, param))
        aliases.keep_like(trace, sample, present[paths[0]])
    aliases.keep_apart(trace, carried.leaves(interpreter.variables), parted)
    return through, region


def _put(interpreter: Interpreter, path: carried.Path, leaf: Any) -> None:
    head, *rest = path
    interpreter.scope[head] = carried.put(interpreter.scope[head], tuple(rest), leaf)


def _state(interpreter: Interpreter) -> Before:
    """What every leaf of the variables stands for: the value of a tensor, numbers and symbols themselves."""
    trace = interpreter.trace
    return {
        path: (trace.value(leaf) or leaf) if isinstance(leaf, torch.Tensor) else leaf
        for path, leaf in carried.leaves(interpreter.variables)
    }


def _changed(before: Before, after: Before) -> set[carried.Path]:
    """The leaves that stand for something else than before."""
    return {path for path, leaf in before.items() if path in after and _differs(leaf, after[path])}


def _differs(left: Any, right: Any) -> bool:
    if isinstance(left, Sym) or isinstance(right, Sym):
        return not (isinstance(left, int) and isinstance(right, int) and same(left, right))
    if isinstance(left, Tile) or isinstance(right, Tile):
        return False  # loop variables
    if isinstance(left, Number) or isinstance(right, Number):
        return left is not right and repr(left) != repr(right)
    if isinstance(left, bool | int | float) and isinstance(right, bool | int | float):
        return type(left) is not type(right) or left != right
    return isinstance(left, Value | bool | int | float) and left is not right


def _close(interpreter: Interpreter, region: Region, loop: Node, through: list[_Carried]) -> None:
    """Check what the body carries, and give the variables their values after the loop."""
    trace = interpreter.trace
    assert trace.region is not None
    after = dict(carried.leaves(interpreter.variables))
    outer = trace.region
    for one in through:
        leaf, param = after[one.paths[0]], one.param
        trace.region = region  # numbers become values of the body
        result = trace.lift(leaf if isinstance(leaf, torch.Tensor) else trace.number(leaf))
        if is_cut(result, param):
            result = trace.lift(keep(trace, result, param))
        trace.region = outer
        equate_dims(trace, param.dims, result.dims)
        if param.dtype != result.dtype or [dim.cut for dim in param.dims] != [dim.cut for dim in result.dims]:
            raise exc.ControlFlowTensorMismatch(
                f"{carried.path_text(one.paths[0])} is {type_text(trace, param)} before the loop and "
                f"{type_text(trace, result)} after a pass over its body",
                hint="give it its final type and shape before the loop, or convert it back with .to(...)",
            )
        region.results.append(result)
    loop.args, loop.regions = ([one.init for one in through],), [region]
    outer.nodes.append(loop)
    for one in through:
        sample = trace.sample(one.param)
        out = trace.fresh(sample, one.param.dims)
        out.name = one.param.name
        aliases.keep_like(trace, sample, after[one.paths[0]])
        loop.outs.append(out)
        for path in one.paths:
            _put(interpreter, path, sample)
