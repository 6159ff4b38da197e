"""Tables beside the source: which configuration a call has, by its sizes.

    softmax.py                      @hl.aot_kernel
    softmax.tuned.json              {"softmax": {"source": ..., "tables": [one for each machine and kind of arguments]}}

A table has some configurations and a tree that chooses among them: {"if": "x.size(1) <= 1448", "then": 0, "else": 1}.
Reading and choosing need none of the tuner; `ahead.py` makes the tables.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import inspect
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tilewright import runtime
from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.constexpr import plain
from tilewright.hl.settings import Settings
from tilewright.hl.trace.source import Source
from tilewright.hl.tune.spec import ConfigSpec

log = logging.getLogger("tilewright.hl.kernel")

SUFFIX = ".tuned.json"
_TEST = re.compile(r"([A-Za-z_]\w*(?:\.size\(\d+\))?) <= (-?\d+)")

Tree = Any
"""The number of a configuration, or {"if": "SIZE <= NUMBER", "then": tree, "else": tree}."""


@dataclass(frozen=True)
class Row:
    """What was measured of one set of arguments.

    Args:
        sizes: of the arguments, as `sizes_of` names them.
        default_ms: time of the default configuration; None if it does not work.
        ms: time of each of the table's; None where one does not work.
    """

    sizes: Mapping[str, int]
    default_ms: float | None
    ms: Sequence[float | None]


@dataclass(frozen=True)
class Table:
    """Configurations of a kernel, and which of them a call has.

    Args:
        machine: what they were measured on, as `machine_name` says it.
        kind: of the arguments, as `kind_of` says it.
        versions: of Tilewright and PyTorch.
        configs: the configurations.
        tree: chooses one.
        measured: what it was made of.
    """

    machine: str
    kind: str
    versions: str
    configs: tuple[Config, ...]
    tree: Tree
    measured: tuple[Row, ...] = field(default=())

    def choose(self, sizes: Mapping[str, int]) -> int:
        """The number of the configuration for arguments of these sizes."""
        found = self.tree
        while not isinstance(found, int):
            name, bound = parsed(found["if"])
            found = found["then" if sizes[name] <= bound else "else"]
        return found


def parsed(test: str) -> tuple[str, int]:
    """The size and the number that a test of a tree compares.

    Raises:
        InvalidConfig: it is no such test.
    """
    match = _TEST.fullmatch(test)
    if match is None:
        raise exc.InvalidConfig(f"{test!r} is no test of a tree", hint='write "x.size(0) <= 64" or "n <= 64"')
    return match[1], int(match[2])


def numbers(tree: Tree) -> Iterator[int]:
    """The configurations that a tree chooses among, by number."""
    if isinstance(tree, int):
        yield tree
    else:
        yield from numbers(tree["then"])
        yield from numbers(tree["else"])


def chooser(tree: Tree, parameters: Sequence[str], runs: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """A function of the arguments, by position, that calls the one of `runs` that the tree has for them."""
    names: dict[str, Any] = {"_runs": runs}
    given = ", ".join(parameters)
    exec(f"def run({given}):\n return _runs[{_text(tree, set(parameters))}]({given})", names)
    made: Callable[..., Any] = names["run"]
    return made


def _text(tree: Tree, parameters: set[str]) -> str:
    if isinstance(tree, int):
        return str(tree)
    name, bound = parsed(tree["if"])
    if name.partition(".")[0] not in parameters:
        raise exc.InvalidConfig(f"the tree asks for {name}, and the parameters are {', '.join(sorted(parameters))}")
    return f"({_text(tree['then'], parameters)} if {name} <= {bound} else {_text(tree['else'], parameters)})"


@dataclass(frozen=True)
class Ahead:
    """What a table says of a kind of arguments.

    Args:
        configs: the configurations among which it chooses.
        first: the one for the arguments of the binding.
        tree: chooses for each call; None where all calls have the first one.
    """

    configs: Sequence[Config]
    first: int
    tree: Tree

    def run(self, parameters: Sequence[str], compile: Callable[[Config], Callable[..., Any]]) -> Callable[..., Any]:
        """What calls run; configurations are compiled when a call has them."""
        if self.tree is None:
            return compile(self.configs[self.first])

        def compiling(number: int) -> Callable[..., Any]:
            def run(*args: Any) -> Any:
                runs[number] = compile(self.configs[number])
                return runs[number](*args)

            return run

        runs = [compiling(number) for number in range(len(self.configs))]
        return chooser(self.tree, parameters, runs)


def ahead_of(path: Path, name: str, spec: ConfigSpec, arguments: Mapping[str, Any], settings: Settings) -> Ahead | None:
    """What a file says of a kernel's arguments; None if nothing that fits.

    Raises:
        InvalidConfig: the file is damaged.
    """
    table = table_for(path, name, arguments)
    if table is None:
        log.info("%s: no table in %s for %s", name, path, kind_of(arguments))
        return None
    try:
        configs = [spec.normalize(config) for config in table.configs]
    except exc.InvalidConfig as error:
        log.warning("%s: the table in %s is of another kernel: %s", name, path, error.message)
        return None
    one = settings.static_shapes or len(configs) == 1
    return Ahead(configs, table.choose(sizes_of(arguments)), None if one else table.tree)


# --- what calls are told apart by -------------------------------------------------------------------------


def sizes_of(arguments: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that a tree may ask for: extents of tensors and integers, by the expressions that give them."""
    found: dict[str, int] = {}
    for name, argument in arguments.items():
        value = plain(argument)
        if isinstance(value, torch.Tensor):
            found.update((f"{name}.size({at})", int(extent)) for at, extent in enumerate(value.shape))
        elif type(value) is int:
            found[name] = value
    return found


def kind_of(arguments: Mapping[str, Any]) -> str:
    """What a table is for besides sizes: "x: float32[2], n: int, causal: True"."""
    return ", ".join(f"{name}: {_kind(plain(argument))}" for name, argument in arguments.items())


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{value.dim()}]"
    if value is None or isinstance(value, bool | str | torch.dtype):
        return repr(value)
    return type(value).__name__


def device_of(arguments: Mapping[str, Any]) -> torch.device:
    """Where the tensors among arguments are; the CPU if there are none."""
    found = [value.device for value in map(plain, arguments.values()) if isinstance(value, torch.Tensor)]
    return next((device for device in found if device.type != "cpu"), torch.device("cpu"))


def machine_name(device: torch.device) -> str:
    """A processor or a GPU as targets name it: "cpu:znver5", "cuda:90"."""
    target = runtime.driver.active.get_current_target()
    return str(target) if target.backend == device.type else device.type


def source_hash(source: Source) -> str:
    """Of the text of a kernel without its decorators."""
    bare = copy.copy(source.tree)
    bare.decorator_list = []
    return hashlib.sha256(ast.unparse(bare).encode()).hexdigest()[:16]


# --- the file ---------------------------------------------------------------------------------------------


def path_beside(function: Callable[..., Any], name: str | Path | None = None) -> Path:
    """The file for a kernel: beside its source, unless a name says otherwise."""
    source = Path(inspect.getsourcefile(function) or "kernel.py")
    return source.with_suffix(SUFFIX) if name is None else source.parent / name


def read(path: Path) -> dict[str, Any]:
    """What a file holds, by name of the kernel; nothing if there is none.

    Raises:
        InvalidConfig: it is damaged.
    """
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(held, dict):
            raise TypeError(f"it is a {type(held).__name__}")
        return held
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise exc.InvalidConfig(
            f"{path} cannot be read: {error}", hint="make it with `tilewright tuned ahead`"
        ) from None


def tables_of(path: Path, name: str) -> list[Table]:
    """The tables of a kernel.

    Raises:
        InvalidConfig: the file is damaged.
    """
    try:
        return [_table(row) for row in read(path).get(name, {}).get("tables", ())]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise exc.InvalidConfig(
            f"{path} has a table of {name} that is none: {error!r}", hint="make it with `tilewright tuned ahead`"
        ) from None


def _table(row: Mapping[str, Any]) -> Table:
    measured = tuple(Row(one["sizes"], one["default_ms"], one["ms"]) for one in row["measured"])
    configs = tuple(Config(**choices) for choices in row["configs"])
    made = Table(row["machine"], row["kind"], row["versions"], configs, row["choose"], measured)
    for number in numbers(made.tree):
        configs[number]
    return made


def table_for(path: Path, name: str, arguments: Mapping[str, Any]) -> Table | None:
    """The table that a call of a kernel takes: of its kind of arguments, and of this machine; of a GPU with an older
    architecture where there is none of its own.

    Raises:
        InvalidConfig: the file is damaged.
    """
    kind, machine = kind_of(arguments), machine_name(device_of(arguments))
    fitting = {table.machine: table for table in tables_of(path, name) if table.kind == kind}
    if machine in fitting or not machine.startswith("cuda:"):
        return fitting.get(machine)
    older = [other for other in fitting if other.startswith("cuda:") and _number(other) < _number(machine)]
    return fitting[max(older, key=_number)] if older else None


def _number(machine: str) -> int:
    return int("".join(filter(str.isdigit, machine)) or 0)


def write(path: Path, name: str, source: str, tables: Sequence[Table]) -> None:
    """Put tables of a kernel into a file, in the place of those for the same machine and kind; those for other machines
    stay if they are of the same source."""
    held = read(path)
    before = held.get(name, {})
    fresh = {(table.machine, table.kind) for table in tables}
    kept = before.get("tables", []) if before.get("source") == source else []
    rows = [row for row in kept if (row["machine"], row["kind"]) not in fresh] + [_row(table) for table in tables]
    held[name] = {"source": source, "tables": sorted(rows, key=lambda row: (row["machine"], row["kind"]))}
    path.write_text(_compact(dict(sorted(held.items()))) + "\n", encoding="utf-8")


def _row(table: Table) -> dict[str, Any]:
    return {
        "machine": table.machine,
        "kind": table.kind,
        "versions": table.versions,
        "choose": table.tree,
        "configs": [config.config for config in table.configs],
        "measured": [
            {"sizes": dict(row.sizes), "default_ms": row.default_ms, "ms": list(row.ms)} for row in table.measured
        ],
    }


def _compact(value: Any, indent: str = "") -> str:
    """JSON of which what fits on a line is on one, so that a difference of two versions can be read."""
    flat = json.dumps(value)
    if len(indent) + len(flat) <= 110 or not isinstance(value, dict | list) or not value:
        return flat
    inner = f"{indent} "
    if isinstance(value, dict):
        items = [f"{inner}{json.dumps(key)}: {_compact(item, inner)}" for key, item in value.items()]
    else:
        items = [f"{inner}{_compact(item, inner)}" for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n" + ",\n".join(items) + f"\n{indent}{closing}"
