"""Where a search begins: configurations that were best for kernels like this one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.tune import journal
from tilewright.hl.tune.spec import ConfigSpec

_EACH, _ALL = 2, 6  # configurations that are taken over from a search, and of all searches


def structure_of(spec: ConfigSpec) -> str:
    """What two kernels share whose configurations mean the same: the choices, and what their loops are made of."""
    counts = {name: len(owners) for name, owners in spec.facts.entries.items() if owners}
    kind = spec.facts.machine.kind
    return f"{kind} {' '.join(f'{name}:{count}' for name, count in sorted(counts.items()))}"


def starts(folder: Path, head: Mapping[str, Any], spec: ConfigSpec, but: str = "") -> list[Config]:
    """The best configurations of searches like one: first of the same kernel for other shapes, then of kernels with the
    same structure; of each the last searches first.

    Args:
        folder: of the journals; files that a colleague has sent are there after `tilewright tuned import`.
        head: first line of the search that begins.
        spec: choices of its kernel.
        but: id of a search that is passed over: this one.
    """
    found = [search for _, search in journal.everything(folder) if search.best is not None]
    alike = [
        search for search in found if search.head["search"] != but and search.head.get("structure") == head["structure"]
    ]
    alike.sort(key=lambda search: search.head.get("source") != head["source"])
    made: list[Config] = []
    for search in alike:
        rows = [search.best, *search.timed[:_EACH]]
        configs = [spec_of(row["config"], spec) for row in rows if row is not None]
        fresh = [config for config in dict.fromkeys(configs) if config is not None and config not in made]
        made += fresh[:_EACH]
        if len(made) >= _ALL:
            break
    return made[:_ALL]


def spec_of(choices: Mapping[str, Any], spec: ConfigSpec) -> Config | None:
    """Choices as a configuration of a kernel, if they are one."""
    try:
        return spec.normalize(choices)
    except exc.InvalidConfig:
        return None
