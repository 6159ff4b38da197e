"""A mutant under the checks and under the oracle, each in a process of its own: a fault may end a process."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import tilewright
import tilewright.language as tl
from tests.corpus.case import CASES, Case, New
from tests.sanitize.mutants import Mutant, far_apart
from tests.sanitize.oracle import judge
from tilewright.sanitize import checking

SECONDS = 60
_NO_PROGRAM = ("CompilationError", "ShapeError", "LanguageTypeError", "UnsupportedError", "TypeError", "NameError")


@dataclass
class Row:
    """A mutant with what was said of it.

    Args:
        mutant: what was changed.
        kinds: of the faults that the checks found.
        bounds, race, error: what the oracle says.
        declined: races were not looked for, or by the order of atomics, which the oracle does not follow.
        unusable: it does not compile, does not end, or ends its process under the oracle.
    """

    mutant: dict[str, Any]
    kinds: list[str]
    bounds: str
    race: bool
    error: str
    declined: bool
    unusable: str

    @property
    def is_faulty(self) -> bool:
        return not self.unusable and bool(self.bounds or (self.race and not self.declined))

    @property
    def is_found(self) -> bool:
        """Whether the checks found a fault of the kind that the oracle names."""
        wanted = {"bounds", "overflow"} if self.bounds else {"race", "lanes", "bounds"}
        return bool(wanted & set(self.kinds))


def case_of(mutant: Mutant, mark: str = "") -> Case:
    """The case, from the changed text; names of kernels end in `mark`."""
    folder = Path(tempfile.mkdtemp())
    path = folder / f"{mutant.file}_mutant.py"
    path.write_text(mutant.text(mark))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    CASES.clear()
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    module.far_apart = far_apart  # type: ignore[attr-defined]
    spec.loader.exec_module(module)
    return CASES[mutant.case]


def _checked(mutant: Mutant) -> dict[str, Any]:
    from tilewright.launch import checked

    case, error, declined = case_of(mutant), "", []
    far = mutant.rule == "int32 product"  # words beside elements would be beside all that lie between the rows, too
    run = checked.CheckedLaunch.run

    def noted(self: Any) -> Any:
        declined.append(bool(self.facts["in_order"]) or self.facts["follows"])
        return run(self)

    checked.CheckedLaunch.run = noted  # type: ignore[method-assign]
    New.empty = lambda self, *shape, dtype=torch.float32: torch.empty(shape, dtype=dtype)  # type: ignore[method-assign]
    with checking("bounds,overflow" if far else "bounds,races,uninitialised") as found:
        try:
            case.run(New("cpu"), **case.small)
        except Exception as problem:
            error = type(problem).__name__
    return {"kinds": sorted({fault.kind for fault in found.faults}), "error": error, "declined": far or any(declined)}


def _judged(mutant: Mutant) -> dict[str, Any]:
    case = case_of(mutant)
    verdict = judge(lambda: case.check("cpu", case.small))
    return asdict(verdict)


def _apart(work: Callable[[Mutant], dict[str, Any]], mutant: Mutant) -> dict[str, Any]:
    """The answer of a process that may die."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        signal.alarm(SECONDS)
        torch.set_num_threads(1)
        try:
            answer = json.dumps(work(mutant))
        except BaseException as error:
            answer = json.dumps({"died": f"{type(error).__name__}: {error}"[:300]})
        os.write(write, answer.encode()[:60_000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(data) if data else {"died": f"status {status}"}


@tilewright.jit
def _copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n), at < n)


def warm_up() -> None:
    """Load the compiler before processes are forked, and start no thread."""
    _copy.warmup(torch.float32, torch.float32, 100, BLOCK=64, grid=(1,))
    for name in ("passes.checks", "launch.checked", "launch.interpret", "sanitize.storages"):
        importlib.import_module(f"tilewright.{name}")


def examine(mutant: Mutant) -> Row:
    """Run a mutant twice."""
    got, want = _apart(_checked, mutant), _apart(_judged, mutant)
    unusable = str(got.get("died") or want.get("died") or "")
    if not unusable and (got["error"] in _NO_PROGRAM or want["error"].startswith(_NO_PROGRAM)):
        unusable = got["error"] or want["error"][:200]
    about = asdict(mutant)
    if unusable:
        return Row(about, got.get("kinds", []), "", False, "", False, unusable)
    return Row(about, got["kinds"], want["bounds"], bool(want["races"]), want["error"][:200], got["declined"], "")
