"""Launches of one signature, without the binder: for callers that know the kinds of all arguments beforehand.

`prepare` writes and compiles the text below; a key that is new takes the binder's way once, where errors are explained.

    def add(gx, gy, gz, x, y, n):
        v0 = x.data_ptr();  v1 = y.data_ptr()
        key = (((v0 | v1) & 15 and (v0 & 15, v1 & 15)) if v0 and v1 else None, x.dtype, y.dtype, <facts of n>)
        run = table.get(key) or slow(key, (x, y, n))
        if gx and gy and gz: run(gx, gy, gz, v0, v1, n)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.base.hooks import settings_changed
from tilewright.compile.grid import grid3
from tilewright.compile.kinds import INT, ArgumentKind, arranged, leaves, paths
from tilewright.compile.specialize import Path
from tilewright.devices.arrays import element_type
from tilewright.launch.bind import Call, Prepared
from tilewright.launch.fastpath import Launch, integer_key
from tilewright.launch.meeting import apart_test, pattern

Resolve = Callable[..., tuple[Call, Prepared]]


def prepare(
    name: str,
    kinds: Sequence[ArgumentKind],
    options: dict[str, Any],
    resolve: Resolve,
    before_launch: Callable[[], None] | None,
    *,
    host_only: bool,
) -> Launch:
    """`launch(gx, gy, gz, *values)`, which takes the run-time values of all arguments in order.

    Args:
        name: of the kernel.
        kinds: its parameters with the kinds of their arguments.
        options: keywords of the launch.
        resolve: `resolve(*args, **kwargs)` compiles for a call, or finds what was compiled.
        before_launch: called ahead of every launch, or None.
        host_only: the caller vouches that every array is a torch tensor in the memory of the CPU.
    """
    slow = _Slow(kinds, options, resolve)
    scope: dict[str, Any] = {
        "_get": slow.table.get,
        "_slow": slow,
        "_before": before_launch,
        "_grid3": grid3,
        "_pattern": pattern,
        "_apart": apart_test(),
    }
    exec(compile(_text(kinds, before_launch is not None, host_only), "<tilewright prepared launch>", "exec"), scope)
    launch: Launch = scope["_launch"]
    launch.__name__ = launch.__qualname__ = name
    return launch


_prepared: weakref.WeakSet[_Slow] = weakref.WeakSet()


def _forget_all() -> None:
    for slow in list(_prepared):
        slow.table.clear()


settings_changed.add(_forget_all)  # knobs are defaults of options


class _Slow:
    """What a prepared launch does for a key that it has not seen.

    Attributes:
        table: key -> launch.
    """

    def __init__(self, kinds: Sequence[ArgumentKind], options: dict[str, Any], resolve: Resolve) -> None:
        self._kinds, self._options, self._resolve = kinds, options, resolve
        self._signature = [leaf for param, kind in kinds for leaf in leaves(kind, param.name)]
        self.table: dict[Any, Launch] = {}
        _prepared.add(self)

    def __call__(self, key: tuple[Any, ...], values: tuple[Any, ...]) -> Launch:
        """The launch for these values; remembered if it serves all that have the key."""
        for (name, kind), value in zip(self._signature, values, strict=True):
            if kind.startswith("*") and element_type(value.dtype, name) != kind[1:]:
                raise ArgumentError(
                    f"argument `{name}` has elements of type {value.dtype}, but the launch was prepared for {kind[1:]}"
                )
        args, kwargs = arranged(self._kinds, values)
        call, prepared = self._resolve(*args, **kwargs, **self._options)
        offered = [path for param, kind in self._kinds for path in paths(kind, (param.index,))]
        launch = _passing(prepared.launch, offered, call)
        if prepared.lasting and prepared.gpu is None and not any(part is None for part in key):
            self.table[key] = launch
        return launch


def _passing(run: Launch, offered: Sequence[Path], call: Call) -> Launch:
    """`run` behind a function that takes the values at `offered`; further ones are the numbers that defaults gave."""
    wanted = call.specialization.runtime_paths
    if wanted == tuple(offered):
        return run
    names = {path: f"v{index}" for index, path in enumerate(offered)}
    known = {f"k{index}": value for index, value in enumerate(call.runtime_values())}
    passed = "".join(f", {names.get(path, f'k{index}')}" for index, path in enumerate(wanted))
    taken = "".join(f", {name}" for name in names.values())
    made: Launch = eval(f"lambda x, y, z{taken}: run(x, y, z{passed})", {"run": run, **known})
    return made


def _text(kinds: Sequence[ArgumentKind], checked: bool, host_only: bool) -> str:
    """Source of `_launch`; `a0`, `a1`, ... are the values and `v0`, ... what the compiled code gets."""
    setup, slots, addresses, key = [], [], [], []
    rows = [(param, leaf) for param, kind in kinds for _, leaf in leaves(kind, param.name)]
    for index, (param, leaf) in enumerate(rows):
        if leaf.startswith("*"):
            setup.append(f"    v{index} = a{index}.data_ptr()\n")
            addresses.append(f"v{index}")
            key.append(f"a{index}.dtype")
            if not host_only:
                key.append(f"a{index}.get_device()")
        elif leaf == INT:
            key.append(integer_key(param).format(a=f"a{index}"))
        slots.append(f"v{index}" if leaf.startswith("*") else f"a{index}")
    if addresses:
        each = ", ".join(f"{v} & 15" for v in addresses)
        if len(addresses) > 1:
            arrays = ", ".join(address.replace("v", "a") for address in addresses)
            key.append(f"_apart({arrays}) or _pattern({arrays})")
        some = f"({' | '.join(addresses)}) & 15 and ({each},)"
        key.insert(0, f"({some}) if {' and '.join(addresses)} else None")
    values = "".join(f", a{index}" for index in range(len(rows)))
    passed = "".join(f", {slot}" for slot in slots)
    return (
        f"def _launch(x, y, z{values}):\n{''.join(setup)}"
        f"    key = ({''.join(f'{part}, ' for part in key)})\n"
        f"    run = _get(key) or _slow(key, ({values[2:]}{',' if rows else ''}))\n"
        f"{'    _before()' if checked else ''}\n"
        f"    if not (0 <= x < 0x80000000 and 0 <= y < 0x10000 and 0 <= z < 0x8000):\n"
        f"        x, y, z = _grid3((x, y, z))\n"
        f"    if x and y and z:\n"
        f"        run(x, y, z{passed})\n"
    )
