"""From the graph of a loop to the kernels of its backward pass."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, replace

import torch

from tilewright import errors
from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.grad import aliases, checks, degree, in_turn, leaks, overwritten, owners, segments
from tilewright.hl.grad.adjoint import Adjoint
from tilewright.hl.grad.broadcasts import narrow
from tilewright.hl.grad.enclosing import enclose
from tilewright.hl.grad.exchange import Exchange, Exchanged, Keeping, exchanges
from tilewright.hl.grad.history import Histories, kept, reads
from tilewright.hl.grad.kept_types import store_as_read
from tilewright.hl.grad.maxima import running_maxima
from tilewright.hl.grad.program import Program, buffer_of
from tilewright.hl.grad.reduced import reduce_lanes
from tilewright.hl.grad.replay import held
from tilewright.hl.grad.simplify import histories, simplify
from tilewright.hl.grad.sizes import Tiles
from tilewright.hl.grad.summaries import keeping, load_summaries
from tilewright.hl.grad.text import program_text
from tilewright.hl.grad.transposed import turn_products
from tilewright.hl.grad.wide import keep_unrounded
from tilewright.hl.graph.nodes import HostTensor, Node, Region, clone, walk
from tilewright.hl.trace.host import Traced


@dataclass(frozen=True)
class Derived:
    """The backward pass of one top-level loop.

    Args:
        program: the kernel.
        text: it, as text.
        owners: for each tensor whose gradient the kernel returns, in this order, who adds it up.
        forward: the forward pass that keeps, and returns, what the kernel reads besides; None where there is nothing.
        forward_text: it, as text.
    """

    program: Program
    text: str
    owners: tuple[owners.Owner, ...]
    forward: Program | None = None
    forward_text: str = ""


@dataclass(frozen=True)
class Asked:
    """What is asked of a backward pass.

    Args:
        wanted: names of the tensors that want gradients.
        views: the tensors that are views of others, to whose gradients PyTorch would add theirs.
        keeps: whether the forward pass may keep more than its results.
        ordered: whether sums are to have one order, also where that takes more memory.
        watched: whether the backward pass is to have a gradient itself: it adds atomically, which has one.
    """

    wanted: frozenset[str]
    views: aliases.Aliases = frozenset()
    keeps: bool = False
    ordered: bool = False
    watched: bool = False


def derive(
    traces: tuple[Traced, Traced],
    at: int,
    asked: Asked,
    name: str,
    tiles: Tiles,
    is_open: bool = False,
) -> Derived:
    """The backward pass of a top-level loop.

    Args:
        traces: two traces of whole calls, with other samples: the second is looked at where a number of the first
            derivation may come of a sample.
        at: number of the loop.
        asked: which gradients, and what may be done for them.
        name: of the kernel that is made.
        tiles: those that the backward pass may have.
        is_open: whether sizes are symbols in the traces.

    Raises:
        NotDifferentiable: it has none, or a size that the trace invented got into it.
    """
    as_they_are = lambda value: value  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(
        as_they_are, as_they_are
    ):  # those of the caller are for its own tensors
        first = _derived(traces[0], at, asked, name, tiles, is_open)
        if not leaks.are_possible(first.text + first.forward_text, traces[0]):
            return first
        second = _derived(traces[1], at, asked, name, tiles, is_open)
    if first.text != second.text:
        pairs = zip(first.text.splitlines(), second.text.splitlines(), strict=False)
        ours = next((line.strip() for line, twin in pairs if line != twin), "")
        source = traces[0].source
        raise exc.NotDifferentiable(
            f"PyTorch's formula for a derivative contains the size of a tile: {ours}",
            errors.Location.of_line(source.file, traces[0].graphs[at].line, source.name),
            hint="write it with sums, and divide by the size yourself: x.sum(0) / x.size(0)",
        )
    return first


def _derived(
    traced: Traced,
    at: int,
    asked: Asked,
    name: str,
    tiles: Tiles,
    is_open: bool,
) -> Derived:
    graph = traced.graphs[at]
    region = clone(graph.region)
    try:
        narrow(region)
        reduce_lanes(region)
        overwritten.rename(region)
        checks.check(region)
        _hold_shifts(region)
        sizes = dict(tiles.forward)
        histories = Histories(sizes)
        _check_maxima(region, histories)
        while True:
            try:
                if histories.loops:  # kept pass by pass, in the tiles of the forward pass
                    histories.blocks |= tiles.enclosing
                first, made = _reversed(traced, region, asked.wanted, histories, tiles)
                kept = Program(name.replace("_backward", "_forward"), Region(), blocks=sizes, is_open=is_open)
                forward = _forward(traced, region, first, made, kept) if asked.keeps and not histories.loops else None
                enclose(made, region.nodes[-1], {} if histories.loops else tiles.enclosing)
                program = Program(name, made, blocks=sizes, is_open=is_open)
                derived = _settled(first, made, program, asked, tiles)
                return replace(derived, forward=forward, forward_text=program_text(forward) if forward else "")
            except exc.HistoryNeeded as error:
                histories.add(error.loop, error)
    except exc.Error as error:
        if not isinstance(error, exc.NotDifferentiable):
            error = _refused(error, error.message or "", error.line)
        raise exc.located(error, place(traced, error.line or graph.line)) from error.__cause__
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        refused = _refused(error, str(error).splitlines()[0], 0)
        raise exc.located(refused, place(traced, graph.line)) from error


def _hold_shifts(region: Region) -> None:
    """Let no gradient flow through maxima on which no result depends."""
    for node in degree.shifts(region):
        node.function = held(node.function)


def _check_maxima(region: Region, histories: Histories) -> None:
    """Keep the history of running maxima on which a result depends."""
    try:
        degree.check(region)
    except exc.DependsOnMaximum as error:
        for node in walk(region):
            if node.op == "loop" and running_maxima(node):
                histories.add(node, error)


def _reversed(
    traced: Traced, region: Region, wanted: frozenset[str], histories: Histories, tiles: Tiles
) -> tuple[Adjoint, Region]:
    """The loops of the backward pass, each gradient's contributions still where they arise."""
    before, top = region.nodes[:-1], region.nodes[-1]
    moves = exchanges(owners.expected(region, wanted), top, histories)
    found = _exchanged(traced, wanted, top, moves, tiles, histories) if moves else None
    if found is None:
        first = Adjoint(traced, wanted, histories)
        made = first.derive(top, before)
        moves = exchanges(owners.contributions(made), top, histories)
        found = _exchanged(traced, wanted, top, moves, tiles, histories) if moves else None
        found = found or (first, _clean(first.with_results(made)))
    first, made = found
    if histories.loops:
        nodes, number = kept(traced, before, top, histories, reads(made), first.next_number())
        made.nodes[:0] = nodes
        first = Adjoint(traced, wanted, histories, number)
        simplify(made)
    return first, made


def _forward(traced: Traced, region: Region, adjoint: Adjoint, made: Region, program: Program) -> Program | None:
    """`program`, as the forward pass that keeps what `made`, which is changed, loads then; None for nothing."""
    before, top = region.nodes[:-1], region.nodes[-1]
    found = load_summaries(made, adjoint.inner, top, adjoint.fresh)
    if not found:
        return None
    return keeping(traced, before, top, found, program)


def _refused(error: Exception, message: str, line: int) -> exc.NotDifferentiable:
    """The error for a derivative in which something is that hl does not have."""
    made = exc.NotDifferentiable(
        f"PyTorch's derivative cannot be computed on tiles: {message}",
        hint="write the function with others, or call .detach() on what it is given",
    )
    made.__cause__, made.line = error, line
    return made


def _clean(region: Region) -> Region:
    """A derived region without what it does in vain; needing the history of a loop is an error then."""
    simplify(region)
    for asked, reader in histories(region):
        raise checks.history(asked, reader)
    return region


def _exchanged(
    traced: Traced,
    wanted: frozenset[str],
    top: Node,
    moves: list[Exchange],
    tiles: Tiles,
    histories: Histories,
) -> tuple[Adjoint, Region] | None:
    """The loops of a backward pass where loops change places; None where gradients turn out to flow otherwise."""
    first = Keeping(traced, wanted, histories)
    first.exchanges, first.grid, first.kept = moves, top.kwargs["axes"], {}
    made = first.derive(top, [])
    moved = {name for one in moves for name in one.tensors}
    rest = owners.contributions(made)
    if {name for name, several in first.left.items() if len(several) == 1} != moved or exchanges(rest, top, histories):
        return None
    made = first.with_results(made)
    others = []
    last: Adjoint = first
    for one in moves:
        last = other = Exchanged(traced, wanted, histories, last.next_number())
        others.append(_clean(other.derive_exchanged(one, top, first.kept, tiles.size(one.axis))))
    used = {name for other in others for name in reads(other)}
    body = made.nodes[-1].regions[0]
    body.nodes = [n for n in body.nodes if n.op != "store" or n.args[0].name in used]
    _clean(made)
    made.nodes += [node for other in others for node in other.nodes]
    number = store_as_read(made, last.next_number())
    last = Adjoint(traced, wanted, histories, number)
    last.inner = first.inner
    return last, made


def _settled(
    adjoint: Adjoint,
    region: Region,
    program: Program,
    asked: Asked,
    tiles: Tiles,
) -> Derived:
    views = frozenset() if asked.ordered else asked.views
    joined = aliases.join(region, owners.contributions(region), views, adjoint.fresh)
    turned = _in_turn(region, adjoint, asked, joined)
    found = owners.contributions(region)
    found = {name: found[name] for name in sorted(found, key=lambda name: name in joined)}  # behind what they are of

    def sizes(axis: Axis) -> int:
        if size := (tiles.blocks or {}).get(axis.id):
            return size
        size = owners.part_size(region, axis, adjoint.trace.device.type)
        return min(axis.within, 1 << size.bit_length() - 1) if axis.within else size

    program.given = sorted(asked.wanted)[:1] if not program.tensors else []
    kept = {node.args[0].name: node.args[0] for node in walk(region) if node.op == "store"}
    for tensor in kept.values():
        program.made.append(buffer_of(tensor.name, tensor.shape, tensor.dtype))
    decided = []
    for several in found.values():
        name = several[0].tensor.name
        owner = joined.get(name) or turned.get(name) or owners.decide(several)
        if asked.watched and owner.form == "add":
            owner = replace(owner, form="atomic")  # nothing reads what it writes
        in_order = segments.plan(region, several, owner) if asked.ordered else None
        if in_order is not None:
            owner, kept_apart = in_order
            segments.settle(program, kept_apart, adjoint.fresh)
        else:
            if name in joined:
                program.made.append(aliases.made(several[0].tensor, dict(views)[name]))
            owners.settle(adjoint.trace, program, several, owner, sizes)
        decided.append(owner)
    simplify(region)
    turn_products(region, keep_unrounded(region, adjoint.next_number()))
    _check_names(program)
    text = program_text(program) if decided else ""  # no gradient flows: there is nothing to compute
    return Derived(program, text, tuple(decided))


def _in_turn(region: Region, adjoint: Adjoint, asked: Asked, joined: Collection[str]) -> dict[str, owners.Owner]:
    """Give gradients by index owners, where that is faster and nobody wants the gradient of what they read."""
    if asked.watched or adjoint.trace.device.type != "cpu":
        return {}
    left = {name: several for name, several in owners.contributions(region).items() if name not in joined}
    if asked.ordered:
        left = {
            name: several
            for name, several in left.items()
            if not segments.plan(region, several, owners.decide(several))
        }
    return in_turn.take_in_turn(region, left, adjoint.fresh)


def _check_names(program: Program) -> None:
    """Refuse numbers with the names of tensors of the derived kernel."""
    twice = (program.own | set(program.tensors)) & set(program.numbers)
    if twice:
        raise exc.NotDifferentiable(
            f"{min(twice)} is a number, and the name of a gradient", hint=f"give {min(twice)} another name"
        )


def place(traced: Traced, line: int) -> errors.Location:
    """The statement that begins at a line of a kernel's file."""
    nodes = (node for node in ast.walk(traced.source.tree) if isinstance(node, ast.stmt) and node.lineno == line)
    found = next(iter(nodes), None)
    return errors.Location.of_line(traced.source.file, line) if found is None else traced.source.location(found)


def tensors_of(traced: Traced, at: int) -> tuple[dict[str, HostTensor], dict[str, HostTensor]]:
    """The tensors that a top-level loop loads, and those that it writes, by name."""
    loaded: dict[str, HostTensor] = {}
    written: dict[str, HostTensor] = {}
    for node in walk(traced.graphs[at].region):
        for tensor in node.args[:1]:
            if isinstance(tensor, HostTensor):
                (loaded if node.op == "load" else written).setdefault(tensor.name, tensor)
    return loaded, written
