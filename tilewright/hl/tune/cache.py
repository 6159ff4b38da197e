"""The best configurations that tuning found, kept as files: `<hash>.best_config`, JSON.

The hash is of the kernel's text, the kind of arguments, the choices that there are, the machine and the version. A file
that cannot be read counts as none; a folder that cannot be written costs a warning, not the result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright import __version__, knobs
from tilewright.hl.config import Config
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


def read(path: Path) -> Config | None:
    """The configuration in a file, if there is one that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["config"]
        return Config(**found)
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
