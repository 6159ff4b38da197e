"""The stage runner: an ordered mapping from extension to function, run, timed, dumped and overridden.

::

    source --ttir--> module --loops--> text --llir--> text --obj--> bytes

Every stage is written to `<dump_dir>/<hash>/<kernel>.<ext>`, with the facts about the code in `<kernel>.json`, and may
be replaced by a file `<override_dir>/<hash>/<kernel>.<ext>`; timing, dumping and overriding are written here once.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.base.errors import UnsupportedError
from tilewright.base.knobs import CompilationKnobs
from tilewright.base.library import json
from tilewright.base.stack import deep_calls
from tilewright.passes import printing, snapshot

_EDIT = "change the .ttir before it, or the .llir behind it"


def _as_it_is(artifact: Any) -> Any:
    return artifact


class Stage(NamedTuple):
    """One step of a pipeline.

    Args:
        run: makes the artifact from the one before; may add to the metadata.
        render: the artifact as text or bytes for dumps and `asm`; the default where it is that already.
        parse: the artifact from a file's contents; ``None`` for a stage that no file stands for.
    """

    run: Callable[[Any, dict[str, Any]], Any]
    render: Callable[[Any], str | bytes] = _as_it_is
    parse: Callable[[bytes], Any] | None = None


@dataclass(slots=True)
class Outcome:
    """What a run of the stages left behind.

    Args:
        artifact: result of the last stage.
        texts: by extension, what the stages made, as text or bytes; without what would have to be rendered for it.
        seconds: time of every stage by extension.
    """

    artifact: Any
    texts: dict[str, str | bytes] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def run_stages(
    stages: Mapping[str, Stage],
    source: Any,
    metadata: dict[str, Any],
    name: str,
    knobs: CompilationKnobs,
    key: str = "",
    until: str | None = None,
) -> Outcome:
    """Run `stages` in order on `source`. Printing a module takes a tenth of a compile and is seldom asked for, so it is
    left out, but for dumps and where a file replaced a stage.

    Args:
        stages: extension -> stage.
        source: input of the first stage.
        metadata: filled by the stages.
        name: kernel name, used for file names.
        knobs: dump and override folders.
        key: hash of what is compiled, the name of its folder.
        until: the last stage that is run; every artifact is rendered then.
    """
    outcome = Outcome(source)
    files = Path(key) / name
    rendered = until is not None or knobs.dump_dir is not None or knobs.override_dir is not None
    for extension, stage in stages.items():
        try:
            with deep_calls():
                _run(stage, extension, outcome, metadata, f"{files}.{extension}", knobs)
                if snapshot.is_source(extension, knobs) and stage.parse is not None:
                    text = snapshot.write_source(str(stage.render(outcome.artifact)), f"{files}.{extension}", knobs)
                    outcome.artifact = stage.parse(text.encode())
                if stage.parse is None and printing.is_shown(name):  # a plan, which is not made by passes
                    printing.show(name, extension, str(stage.render(outcome.artifact)))
                if rendered or stage.render is _as_it_is:
                    _render(stage, extension, outcome, f"{files}.{extension}", knobs)
        except RecursionError as error:
            raise UnsupportedError(
                f"{name} is nested too deeply for the stage {extension!r}",
                hint="use fewer branches inside branches (early returns count), shorter chains of operations, or loops",
            ) from error
        if extension == until:
            return outcome
    if knobs.dump_dir is not None:
        _dump(knobs.dump_dir / f"{files}.json", json.dumps(metadata, indent=1).encode())
    return outcome


def _run(
    stage: Stage, extension: str, outcome: Outcome, metadata: dict[str, Any], file_name: str, knobs: CompilationKnobs
) -> None:
    """Run one stage on what the stages before left in `outcome`."""
    begin = time.perf_counter()
    made = stage.run(outcome.artifact, metadata)
    outcome.artifact = _overridden(stage, made, knobs.override_dir, file_name)
    outcome.seconds[extension] = time.perf_counter() - begin


def _render(stage: Stage, extension: str, outcome: Outcome, file_name: str, knobs: CompilationKnobs) -> None:
    """Keep what a stage made as text or bytes, also in the folder of dumps."""
    text = stage.render(outcome.artifact)
    outcome.texts[extension] = text
    if knobs.dump_dir is not None:
        _dump(knobs.dump_dir / file_name, text.encode() if isinstance(text, str) else text)


def _dump(file: Path, contents: bytes) -> None:
    """Write a dump; a launch does not fail for want of one."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(contents)
    except OSError as error:
        folder = file.parent.parent
        warnings.warn(
            f"stages are not written to TILEWRIGHT_DUMP_DIR={folder}: {error.strerror}", RuntimeWarning, stacklevel=2
        )


def _overridden(stage: Stage, made: Any, folder: Path | None, file_name: str) -> Any:
    """The artifact that a file of the override folder gives, or the one that was made.

    Raises:
        UnsupportedError: there is a file for a stage that no file can stand for.
    """
    file = None if folder is None else folder / file_name
    if file is None or not file.is_file():
        return made
    if stage.parse is None:
        raise UnsupportedError(
            f"{file} replaces nothing: this stage is a plan, of which the file shows a part", hint=_EDIT
        )
    return stage.parse(file.read_bytes())
