"""Which variable each carried value lives in: the one that the state began in, where nothing else needs that."""

from __future__ import annotations

from collections import Counter

from tilewright.hl.emit.kernel import Kernel
from tilewright.hl.graph.nodes import Node, Region, Value, operands, symbols, values, walk


def count_readers(region: Region) -> Counter[int]:
    """How often each value is read, results of regions included."""
    count: Counter[int] = Counter(value.id for value in region.results)
    for node in walk(region):
        count.update(value.id for value in operands(node))
        count.update(value.id for symbol in symbols((node.args, node.kwargs)) for value in _inside(symbol))
        for body in node.regions:
            count.update(value.id for value in body.results)
    return count


def _inside(symbol: object) -> list[Value]:
    atoms = symbol.atoms()  # type: ignore[attr-defined]
    return [value for atom in atoms for value in values(list(atom.args))]


def start(kernel: Kernel, region: Region, inits: list[Value]) -> None:
    """Assign the state that a loop begins with; a value that only the loop reads is the state already."""
    for param, init in zip(region.params, inits, strict=True):
        name = kernel.values.get(init.id)
        shared = sum(other == name for other in kernel.values.values()) > 1
        if isinstance(name, str) and kernel.readers[init.id] == 1 and not shared and init.dtype == param.dtype:
            kernel.values[param.id] = name
        else:
            kernel.lines.write(f"{kernel.name_of(param)} = {kernel.typed(init, param.dtype)}")
    for param, result in zip(region.params, region.results, strict=True):
        if _may_overwrite(region, param, result):
            kernel.values[result.id] = kernel.values[param.id]


def _may_overwrite(region: Region, param: Value, result: Value) -> bool:
    """Whether `result` may be computed right into the variable of `param`: nobody reads `param` afterwards."""
    if region.results.count(result) != 1 or param in region.results:
        return False
    maker = next((at for at, node in enumerate(region.nodes) if result in node.outs), None)
    if maker is None or region.nodes[maker].regions or len(region.nodes[maker].outs) != 1:
        return False
    return not any(param in _read(node) for node in region.nodes[maker + 1 :])


def _read(node: Node) -> list[Value]:
    inside = [value for body in node.regions for inner in walk(body) for value in operands(inner)]
    return [*operands(node), *inside, *(value for body in node.regions for value in body.results)]


def finish(kernel: Kernel, region: Region) -> None:
    """Assign the state that the next pass starts with: all at once where one result is another's variable."""
    pairs = [
        (kernel.name_of(param), kernel.typed(result, param.dtype))
        for param, result in zip(region.params, region.results, strict=True)
        if kernel.name_of(param) != kernel.operand(result)
    ]
    targets = {target for target, _ in pairs}
    if any(source in targets for _, source in pairs):
        kernel.lines.write(f"{', '.join(target for target, _ in pairs)} = {', '.join(source for _, source in pairs)}")
    else:
        for target, source in pairs:
            kernel.lines.write(f"{target} = {source}")
