"""The grid of a kernel: from the number of a program to the first index along each axis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.hl.dims import Axis
from tilewright.hl.emit.kernel import Kernel
from tilewright.hl.symbols import Sym, substitute, text


@contextmanager
def grid_head(kernel: Kernel, axes: list[Axis]) -> Iterator[None]:
    """Write the offsets of every axis; what follows is inside the loop of a persistent kernel."""
    kind = kernel.decision.config["pid_type"]
    ordered = in_order(kernel, axes)
    if kind == "xyz":
        for at, axis in enumerate(ordered):
            emit_offset(kernel, axis, "0" if iterations(kernel, axis) == "1" else f"tl.program_id({at})")
        yield
    elif kind == "flat":
        if len(axes) > 1:
            kernel.lines.write("pid = tl.program_id(0)")
        _offsets(kernel, ordered, "pid" if len(axes) > 1 else "tl.program_id(0)")
        yield
    else:
        options = range_options(kernel, axes[0])
        total = assigned(kernel, "total", " * ".join(iterations(kernel, axis) for axis in ordered))
        if kind == "persistent_blocked":
            share = assigned(kernel, "share", f"tl.cdiv({total}, tl.num_programs(0))")
            first = assigned(kernel, "first", f"tl.program_id(0) * {share}")
            kernel.lines.write(f"for pid in tl.range({first}, min({first} + {share}, {total}){options}):")
        else:
            kernel.lines.write(f"for pid in tl.range(tl.program_id(0), {total}, tl.num_programs(0){options}):")
        with kernel.lines.indented():
            _offsets(kernel, ordered, "pid")
            yield


def assigned(kernel: Kernel, wish: str, text: str) -> str:
    """Write an assignment to a new variable; returns its name."""
    name = kernel.names.new(wish)
    kernel.lines.write(f"{name} = {text}")
    return name


def in_order(kernel: Kernel, axes: list[Axis]) -> list[Axis]:
    """The axes of a loop in the order that the configuration gives them."""
    order = kernel.decision.choice("loop_orders", axes[0].id)
    return axes if order is None else [axes[at] for at in order]


def range_options(kernel: Kernel, axis: Axis) -> str:
    """Options of `tl.range`, each with a comma before it."""
    choice, options = kernel.decision.choice, []
    for key, option in (
        ("range_unroll_factors", "loop_unroll_factor"),
        ("range_warp_specializes", "warp_specialize"),
        ("range_num_stages", "num_stages"),
        ("range_multi_buffers", "disallow_acc_multi_buffer"),
        ("range_flattens", "flatten"),
    ):
        value = choice(key, axis.id)
        if value is not None and not (type(value) is int and value == 0):
            options.append(f", {option}={not value if key == 'range_multi_buffers' else value}")
    return "".join(options)


def _offsets(kernel: Kernel, axes: list[Axis], pid: str) -> None:
    """Write the first index along each axis, the first axis fastest; groups of the first two where asked for.

    An axis of one tile begins where its range does: a constant is known to be aligned, and inside whatever follows.
    """
    counts = {axis.id: iterations(kernel, axis) for axis in axes}
    several = {ident: count for ident, count in counts.items() if count != "1"}
    group = kernel.decision.choice("l2_groupings", min(counts)) or 1
    numbers = dict(zip(several, _numbers(kernel, list(several.values()), pid, group), strict=True))
    for axis in axes:
        emit_offset(kernel, axis, numbers.get(axis.id, "0"))


def _numbers(kernel: Kernel, counts: list[str], pid: str, group: int) -> list[str]:
    """The number of the tile along each axis, of which there are `counts`."""
    numbers = []
    for at in range(len(counts)):
        before, last = counts[:at], at == len(counts) - 1
        text = f"{pid} // {_product(before)}" if before else pid
        numbers.append(text if last else f"{text} % {counts[at]}")
    if group > 1 and len(counts) > 1:
        numbers[:2] = _grouped(kernel, counts[:2], group, f"({pid} % {_product(counts[:2])})" if counts[2:] else pid)
    return numbers


def _product(counts: list[str]) -> str:
    return counts[0] if len(counts) == 1 else f"({' * '.join(counts)})"


def _grouped(kernel: Kernel, counts: list[str], group: int, pid: str) -> list[str]:
    """Numbers along two axes such that `group` tiles of the first are visited for one of the second."""
    head = assigned(kernel, "head", f"{pid} // ({group} * {counts[1]}) * {group}")
    height = assigned(kernel, "height", f"min({counts[0]} - {head}, {group})")
    place = assigned(kernel, "place", f"{pid} % ({group} * {counts[1]})")
    return [f"{head} + {place} % {height}", f"{place} // {height}"]


def emit_offset(kernel: Kernel, axis: Axis, number: str) -> None:
    """Write the first index of the tile with this number."""
    block, begin = kernel.decision.block(axis), kernel.symbol(axis.begin)
    name = kernel.offsets[axis.id] = kernel.names.new(stem("offset", axis))
    if number == "0":
        kernel.lines.write(f"{name} = {begin}")
        return
    number = f"tl.cast({number}, tl.int64)" if axis.wide else number
    text = number if block == 1 else f"({number}) * {block}" if " " in number else f"{number} * {block}"
    kernel.lines.write(f"{name} = {text if begin == '0' else f'{begin} + {text}'}")


def stem(what: str, axis: Axis) -> str:
    """The wish for a name: `index_m` for the index of `tile_m`."""
    short = axis.name.removeprefix("tile_")
    if axis.kind == "grid":
        return short
    return what if short == "tile" else f"{what}_{short}"


def iterations(kernel: Kernel, axis: Axis) -> str:
    """How many tiles an axis has, as text of the kernel."""
    count = _iterations(kernel, axis)
    return str(count) if not isinstance(count, str) else count


def _iterations(kernel: Kernel, axis: Axis) -> Any:
    extent = substitute(axis.end - axis.begin, kernel.decision.number)
    block = kernel.decision.block(axis)
    if not isinstance(extent, Sym):
        return -(-extent // block)
    written = kernel.symbol(extent)
    return written if block == 1 else f"tl.cdiv({written}, {block})"


def grid_text(kernel: Kernel, axes: list[Axis]) -> str:
    """The numbers of programs as text of the launcher: what stands in the brackets of a launch."""
    counts = [_host_iterations(kernel, axis) for axis in in_order(kernel, axes)]
    kind = kernel.decision.config["pid_type"]
    if kind == "xyz":
        return f"({', '.join(counts)})"
    total = " * ".join(counts)
    if kind == "flat":
        return f"({total},)"
    device = f"{next(iter(kernel.tensors.values())).text}.device"
    times = kernel.decision.config["num_sm_multiplier"]
    programs = f"get_num_sm({device})" + (f" * {times}" if times > 1 else "")
    return f"(min({total}, {programs}),)"


def _host_iterations(kernel: Kernel, axis: Axis) -> str:
    """How many tiles an axis has, as text of the launcher."""
    extent = substitute(axis.end - axis.begin, kernel.decision.number)
    block = kernel.decision.block(axis)
    if isinstance(extent, Sym):
        written = text(extent, lambda atom: atom.text)
        return written if block == 1 else f"tilewright.cdiv({written}, {block})"
    return str(max(0, -(-extent // block)))
