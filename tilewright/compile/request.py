"""The one entry point to compiled code: a request says what is compiled, for which arguments, how, and for what.

::

    kernel[grid](...)  warmup  compile()  IR files  workers  tools
              \\          \\       |         /        /       /
               make_request(source, specialization, options, target) -> Request -> build.compile_request
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tilewright.base import assumptions
from tilewright.base.cache_layers import SmallObjects
from tilewright.base.knobs import knobs
from tilewright.base.library import hashlib
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.base.version import __version__
from tilewright.compile.specialize import Specialization
from tilewright.devices.arrays import HOST
from tilewright.devices.drivers import target_at
from tilewright.devices.registry import backend_of, options_for, parse_target
from tilewright.frontend.hashing import check_globals, source_files
from tilewright.passes.stages import Stage


class Source(Protocol):
    """What tile IR is made of: a kernel, a text that defines one, or a file of tile IR.

    Attributes:
        ext: extension of its first stage.
    """

    ext: str

    def name_for(self, specialization: Specialization) -> str:
        """Name of the compiled function."""

    def content(self) -> str:
        """Hash of everything that the tile IR depends on, but for the rest of the request."""

    def check(self) -> None:
        """Raise GlobalsChangedError if it is no longer what `content` was made of."""

    def has_content(self) -> bool:
        """Whether `content` says everything, also to another process."""

    def files(self) -> Mapping[str, str]:
        """Paths of what it is written in, which are no content, by qualified names of functions in there."""

    def before_passes(self, request: Request) -> str | bytes:
        """What the first stage starts with: tile IR before any pass, or the file."""

    def stages(self, request: Request, later: Mapping[str, Stage]) -> dict[str, Stage]:
        """All stages of this source by extension: the back end's, which are `later`, and those before them."""


@dataclass(frozen=True, slots=True)
class Request:
    """All that a compilation depends on. It can be pickled where its source can.

    Args:
        source: of the tile IR.
        specialization: types and keys of the arguments.
        options: those of the target's back end.
        target: what to compile for.
        asked: every option that was asked for by name, those of other back ends included. They are shown in the
            metadata of the kernel (of the first request, if several get the same code) and are no part of the key.
    """

    source: Source
    specialization: Specialization
    options: Options
    target: Target
    asked: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """Name of the compiled function."""
        return self.source.name_for(self.specialization)

    def settled(self) -> Request:
        """The same, which nothing changes that happens to the arguments later."""
        settled = self.specialization.settled()
        return self if settled is self.specialization else replace(self, specialization=settled)

    def check(self) -> None:
        """Raise GlobalsChangedError if the source, or a function among the constants, is no longer what was hashed."""
        self.source.check()
        for function in self.specialization.functions():
            check_globals(function)

    def files(self) -> dict[str, str]:
        """Paths of all sources, by qualified names of functions in them."""
        found = dict(self.source.files())
        for function in self.specialization.functions():
            found |= source_files(function)
        return found

    def key(self) -> str:
        """Content hash that names the compiled kernel in the disk cache."""
        parts = (
            self.name,
            fingerprint(),
            backend_of(self.target).versions(),
            self.source.content(),
            self.specialization.text(),
            self.options.key(),
            repr(self.target),
            assumptions.key(),
        )
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_request(
    source: Source,
    specialization: Specialization,
    options: Mapping[str, Any] | Options | None = None,
    target: Target | None = None,
) -> Request:
    """A request with complete options.

    Args:
        source: what is compiled.
        specialization: types and keys of its arguments.
        options: by name; options of other back ends are left out. Finished options are taken as they are.
        target: default is that of the active driver.

    Raises:
        UnknownOptionError: no back end has such an option.
        ArgumentError: a value that an option cannot have.
        UnsupportedError: no back end for `target`.
    """
    target = target_at(None) if target is None else target
    asked = {} if isinstance(options, Options) else dict(options or {})
    made = options if isinstance(options, Options) else complete_options(asked, target)
    return Request(source, specialization, made, target, asked)


def compile_target(given: Target | str) -> Target:
    """A target as a user names it: "cpu" alone is this machine's.

    Raises:
        UnsupportedError: the text is no target.
    """
    if given == "cpu":
        return target_at(HOST)
    target = parse_target(given)
    return target_at(HOST) if target.backend == "cpu" and not target.arch else target


def complete_options(given: Mapping[str, Any], target: Target) -> Options:
    """Options with every default filled in: those of the knobs, then those of the back end.

    Raises:
        UnknownOptionError: no back end has such an option.
        ArgumentError: a value that an option cannot have.
    """
    defaults: dict[str, Any] = {"enable_fp_fusion": knobs.language.default_fp_fusion}
    if knobs.language.fp32_default is not None:
        defaults["default_dot_input_precision"] = knobs.language.fp32_default
    forced: dict[str, Any] = {"debug": knobs.runtime.debug or given.get("debug") or False}  # the knob wins over False
    if knobs.language.force_disable_fp_fusion:
        forced["enable_fp_fusion"] = False
    return options_for(target, {**defaults, **given, **forced})


@functools.cache
def fingerprint() -> str:
    """Identifies this version of Tilewright, wherever it is installed: the content of each file that code depends on.

    The content is read when name, size or time of a file has changed since this machine last looked.
    """
    root = str(Path(__file__).resolve().parent.parent)
    files = dict(sorted(_files(root)))
    rows = [f"{path}:{status.st_size}:{status.st_mtime_ns}" for path, status in files.items()]
    stamp = hashlib.sha256(";".join([__version__, *rows]).encode()).hexdigest()
    known = _remembered.get_bytes(stamp)
    if known is None:
        known = _content_of(files, root).encode()
        _remembered.put_bytes(stamp, known)
    return known.decode()


def _files(root: str) -> list[tuple[str, os.stat_result]]:
    """Path and status of the Python files that code depends on; ten times as fast as `Path.rglob`."""
    found, folders, without = [], [root], _ABOVE
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                name = entry.name
                if name[-3:] == ".py":
                    found.append((entry.path, entry.stat()))
                elif "." not in name and name not in without and entry.is_dir():
                    folders.append(entry.path)
        without = _COMPILED
    return found


_remembered = SmallObjects()
_COMPILED = frozenset({"__pycache__"})
_ABOVE = _COMPILED | frozenset({"launch", "tuning", "runtime", "compiler", "torch", "hl", "triton_names", "tools"})
"""Rooms above this one: what is compiled reaches them, and they do not reach what is compiled."""


def _content_of(files: Iterable[str], root: str) -> str:
    digest = hashlib.sha256(__version__.encode())
    for path in files:
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"\0{path[len(root) :]}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
