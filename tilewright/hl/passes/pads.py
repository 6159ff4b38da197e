"""What invalid lanes hold, and constants put there where a reduction or a product needs them.

For each value and each masked axis the lanes that are cut off hold a known constant or something unknown: loads hold 0,
element by element operations what they give on constants. Where a row needs its neutral element and something else is
there, a `mask_to` node is put before it; a load that only such nodes read gets the constant as its `other` instead.
"""

from __future__ import annotations

from typing import Any

from tilewright.hl import exc
from tilewright.hl.dims import Dim
from tilewright.hl.graph.nodes import Node, Region, Value, accessed, operands, replace, walk
from tilewright.hl.passes.decide import Decision
from tilewright.hl.passes.merged import Merged, scattered
from tilewright.hl.rows.table import ROWS, UNKNOWN, Need
from tilewright.hl.symbols import Atom


class PadState:
    """What is known of masked lanes, value by value."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self._known: dict[tuple[int, Atom], Any] = {}

    def of(self, value: Any, atom: Atom) -> Any:
        """A constant, or `UNKNOWN`; an operand without the axis holds unknown data everywhere."""
        return self._known.get((value.id, atom), UNKNOWN)

    def put(self, value: Value, atom: Atom, known: Any) -> None:
        """Write down what the lanes of `value` that `atom` masks hold: nothing of a tile along two dimensions, of which
        an operand may have had one."""
        along = sum(dim.atoms.count(atom) for dim in value.dims)
        self._known[value.id, atom] = known if along < 2 else UNKNOWN


def place_pads(region: Region, decision: Decision) -> None:
    """Rewrite `region` so that every operand holds what its reader needs."""
    _Placer(region, decision).run(region)


class _Placer:
    def __init__(self, region: Region, decision: Decision) -> None:
        self.decision, self.state = decision, PadState(decision)
        self.readers: dict[int, list[Node]] = {}
        for node in walk(region):
            for value in operands(node):
                self.readers.setdefault(value.id, []).append(node)
            for inner in node.regions:
                for value in inner.results:
                    self.readers.setdefault(value.id, []).append(node)
        bodies = [body for node in walk(region) for body in node.regions]
        made = [out for node in walk(region) for out in node.outs] + [param for body in bodies for param in body.params]
        self.next = 1 + max((value.id for value in made), default=0)
        self.makers = {out.id: node for node in walk(region) for out in node.outs}
        self.merged = Merged(region)
        self.made: dict[tuple[int, tuple[int, ...], str], Value] = {}

    def run(self, region: Region) -> None:
        """Rewrite one region."""
        nodes, region.nodes = region.nodes, []
        scope = dict(self.made)
        for node in nodes:
            self._node(region, node)
        self.made = scope

    def _node(self, region: Region, node: Node) -> None:
        if node.op in ("load", "store") or node.op.startswith("atomic_"):
            self._access(node)
        if node.op == "load":
            self._load(node)
        elif node.op == "keep":
            node.kwargs["same"] = self._keeps(*node.args)
        elif node.regions and node.op not in ROWS:
            for inner in node.regions:
                self.run(inner)
        elif node.op in ROWS:
            row = ROWS[node.op]
            self._check_view(node)
            for need in row.needs(node):
                self._fill(region, node, need)
            for out in node.outs:
                for _, atom in self.decision.masks(out.dims):
                    self.state.put(out, atom, row.pads(node, self.state, out, atom))
        region.nodes.append(node)

    def _check_view(self, node: Node) -> None:
        """Refuse a view that takes a tile apart where it may be cut."""
        cut = [block for block in scattered(node) if self.decision.masked(block)]
        if cut:
            axis = self.decision.axes[int(cut[0].key)]
            size = self.decision.block(axis)
            raise exc.UnsupportedOperation(
                f"{axis.name} is taken apart where its block size, {size}, does not divide the range",
                hint="choose a block size that divides the range, or take its first lanes together: "
                "x[tile].view(tile.block_size // 2, 2)",
            )

    def _keeps(self, new: Value, old: Value) -> bool:
        """Whether lanes that tiles cut off `new` hold what `old` does: there is nothing to put back."""
        cut = [atom for _, atom in self.decision.masks(new.dims) if (_, atom) not in self.decision.masks(old.dims)]
        maker = self.makers.get(new.id)
        adds = maker is not None and maker.op == "add" and not maker.kwargs and old in maker.args
        others = [arg for arg in maker.args if arg is not old] if maker is not None and adds else []
        zero = bool(others) and all(
            isinstance(arg, Value) and self.state.of(arg, atom) == 0 for arg in others for atom in cut
        )
        return not cut or zero

    def _access(self, node: Node) -> None:
        """Write down what merged dimensions of an access are made of: its masks depend on it."""
        dims = accessed(node)
        found = {at: self.merged.accessed(node, dims, at) for at in self._merged(dims)}
        if found:
            node.kwargs["parts"] = found

    def _merged(self, dims: tuple[Dim, ...]) -> list[int]:
        """The dimensions that merge a masked axis with something else."""
        return [at for at, dim in enumerate(dims) if dim.atom is None and self.decision.masks([dim])]

    def _load(self, node: Node) -> None:
        """Choose the load's `other`: what all its readers need, else 0."""
        wanted = {}
        for reader in self.readers.get(node.out.id, ()):
            needs = ROWS[reader.op].needs(reader) if reader.op in ROWS else []
            mine = [need for need in needs if need.value is node.out]
            wanted[repr(mine[0].neutral) if mine else None] = mine[0].neutral if mine else 0
        plain = "mask" not in node.kwargs and all(
            all(entry.inside) for entry in node.args[1]
        )  # else valid lanes read 0
        other = next(iter(wanted.values())) if plain and len(wanted) == 1 and None not in wanted else 0
        node.kwargs["other"] = other
        base = node.kwargs.get("base")
        covered = set(range(len(base.dims))) if base is not None else set()  # along others every lane has one element
        covered.update(*(entry.varies for entry in node.args[1] if not entry.reads_one))
        for at, atom in self.decision.masks(node.out.dims):
            self.state.put(node.out, atom, other if at in covered else UNKNOWN)

    def _fill(self, region: Region, node: Node, need: Need) -> None:
        dims = [at for at in need.dims if self._is_wrong(need, at)]
        if not dims:
            return
        parts = {at: self.merged.of(need.value, at) for at in self._merged(need.value.dims) if at in dims}
        if None in parts.values():
            raise exc.UnsupportedOperation(
                f"{node.op} over a dimension that merges a tile with something else, where the block size does not "
                "divide the range",
                hint="reduce the dimensions one by one, before they are merged, or choose a block size that divides "
                "the range",
            )
        key = need.value.id, tuple(dims), repr(need.neutral)
        filled = self.made.get(key)
        if filled is None:
            filled = self.made[key] = Value(self.next, need.value.dims, need.value.dtype)
            self.next += 1
            named = {"parts": parts} if parts else {}
            mask = Node("mask_to", (need.value, tuple(dims), need.neutral), named, node.line, [filled])
            for _, atom in self.decision.masks(filled.dims):
                self.state.put(filled, atom, ROWS["mask_to"].pads(mask, self.state, filled, atom))
            region.nodes.append(mask)
        source = need.value
        node.args = replace(node.args, lambda arg: filled if arg is source else arg)

    def _is_wrong(self, need: Need, at: int) -> bool:
        """Whether masked lanes of a dimension may hold something else than what is needed."""
        return any(self.decision.masked(atom) and not self._holds(need, atom) for atom in need.value.dims[at].atoms)

    def _holds(self, need: Need, atom: Atom) -> bool:
        known = self.state.of(need.value, atom)
        return known is not UNKNOWN and bool(known == need.neutral)
