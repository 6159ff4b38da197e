"""`Config`: the choices that a kernel is compiled with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright.hl import environment


class Config(Mapping[str, Any]):
    """An immutable mapping from the names of choices to their values.

    Args:
        choices: `block_sizes=[64, 32], num_warps=4, ...`; None means "not chosen". Each is an item, and an attribute.
    """

    def __init__(self, **choices: Any) -> None:
        self.config = {name: _plain(value) for name, value in sorted(choices.items())}

    def __getitem__(self, name: str) -> Any:
        return self.config[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "config" or name not in self.config:
            raise AttributeError(f"the configuration has no choice {name!r}")
        return self.config[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.config)

    def __len__(self) -> int:
        return len(self.config)

    def __repr__(self) -> str:
        choices = ", ".join(f"{name}={value!r}" for name, value in self.config.items())
        return f"{environment.package()}.Config({choices})"

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.config == other.config

    def to_json(self) -> str:
        """The choices as JSON, sorted by name."""
        return json.dumps(self.config, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Config:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))

    @classmethod
    def from_dict(cls, choices: Mapping[str, Any]) -> Config:
        """A configuration of a mapping's items."""
        return cls(**choices)

    def minimize(self, spec: Any) -> Config:
        """The choices that differ from the defaults of a `ConfigSpec`, and the block sizes."""
        full, default = spec.normalize(self), spec.default_config()
        return Config(**{name: full[name] for name in full if name == "block_sizes" or full[name] != default.get(name)})

    def save(self, path: str | Path) -> None:
        """Write the choices as JSON."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Config:
        """Read what `save` wrote."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))


def _plain(value: Any) -> Any:
    """Lists for tuples, so that equal choices are equal."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
