"""The best configurations that tuning found, kept as files: `<hash>.best_config`, JSON, with the journal
of the searches beside it.

The hash is of the kernel's text, the kind of arguments, the choices that there are, the machine and the version. A file
that cannot be read counts as none; a folder that cannot be written costs a warning, not the result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tilewright import __version__, knobs
from tilewright.hl.config import Config
from tilewright.hl.tune import warm
from tilewright.hl.tune.spec import ConfigSpec


def path_of(source: str, key: Any, spec: ConfigSpec, configs: Sequence[Config]) -> Path:
    """The file for a kernel and a kind of arguments.

    Args:
        source: text of the kernel.
        key: its specialization key.
        spec: the choices that there are.
        configs: those to choose among; empty for all.
    """
    kind = re.sub(r" at 0x[0-9a-f]+", "", repr(key))
    parts = [__version__, source, kind, repr(spec.choices), repr(spec.facts.machine), repr(list(configs))]
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return Path(knobs.cache.dir) / "hl" / f"{name}.best_config"


def read(path: Path, whole: bool = False) -> Config | None:
    """The configuration in a file, if there is one that can be read.

    Args:
        path: the file.
        whole: not that of a search which was interrupted.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return None if whole and found.get("interrupted") else Config(**found["config"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def head(name: str, source: str, key: Any, spec: ConfigSpec, about: Mapping[str, str]) -> dict[str, str]:
    """What the journal of a search says of it, all of it text.

    Args:
        name: of the kernel.
        source: its text.
        key: its specialization key.
        spec: the choices that there are.
        about: what else is said.
    """
    return {
        "kernel": name,
        "key": re.sub(r" at 0x[0-9a-f]+", "", repr(key)),
        "structure": warm.structure_of(spec),
        "source": hashlib.sha256(source.encode()).hexdigest()[:16],
        "machine": f"{spec.facts.machine!r} {_device_name(spec.facts.machine.kind)}",
        "versions": f"tilewright {__version__}, torch {torch.__version__}",
        **about,
    }


def _device_name(kind: str) -> str:
    return torch.cuda.get_device_name() if kind == "cuda" and torch.cuda.is_available() else platform.processor()


def write(path: Path, config: Config, about: dict[str, Any]) -> None:
    """Keep a configuration.

    Args:
        path: where.
        config: the configuration.
        about: what a reader may want to know: kernel, times.
    """
    text = json.dumps({"config": config.config, **about}, indent=1, sort_keys=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            Path(name).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        warnings.warn(f"the best configuration could not be kept in {path.parent}: {error}", stacklevel=2)
