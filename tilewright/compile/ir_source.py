"""Compiling the file of a stage: what comes before it is left out, everything after it is the same.

::

    compile("kernel.ttir")   tile IR, ours or Triton's -> parse -> passes -> the back end's stages -> CompiledKernel
    compile("kernel.ptx")    a file of TILEWRIGHT_DUMP_DIR, with kernel.json beside it -> the stages behind it
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.base.library import hashlib, json
from tilewright.compile.lazy_compiler import ir_text, pipeline, stage_facts, text, united
from tilewright.compile.request import Request
from tilewright.compile.sources import nest_stage, simplify
from tilewright.compile.specialize import Specialization
from tilewright.passes.stages import Stage

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

_BINARY = ("obj", "cubin")


class IRSource:
    """A kernel as the file of a stage.

    Args:
        path: the file. It ends in `.ttir`, or like another stage of the target. Beside those the file of facts must lie
            that is written with the stages, `.json`, unless their text says as much.
        context, backend: of Triton, without a meaning here.

    Attributes:
        ext: how the file ends.
        name: symbol of its public function.
        signature: signature type by parameter (`arg0`, `arg1`, ...). Integers count as signed.

    Raises:
        ArgumentError: there is no such file, or no file of facts beside it.
        ParseError: the text is no tile IR.
        TilewrightError: there is not exactly one public function.
    """

    def __init__(self, path: str | Path, context: Any = None, backend: Any = None) -> None:
        self.path, self.ext = Path(path), Path(path).suffix.removeprefix(".")
        if not self.path.is_file():
            raise ArgumentError(f"there is no file {self.path}", hint="TILEWRIGHT_DUMP_DIR has every stage written")
        self.contents, self._facts = self.path.read_bytes(), {}
        if self.ext == "ttir":
            self.name, types = ir_text.name_and_types(self.contents.decode(), str(path))
        else:
            self._facts = _facts_beside(self.path) or _facts_in(self.path, self.contents)
            self.name, types = self._facts["name"], self._facts["types"]
        self.signature = {f"arg{i}": kind for i, kind in enumerate(types)}

    def specialization(self) -> Specialization:
        """Types of the arguments; nothing is a compile-time constant any more."""
        return Specialization(tuple(self.signature), tuple(self.signature.values()), ("",) * len(self.signature))

    def name_for(self, specialization: Specialization) -> str:
        """Name of the compiled function."""
        return self.name

    def content(self) -> str:
        """Content hash of the file, and of the facts."""
        facts = json.dumps(self._facts, sort_keys=True)
        return hashlib.sha256(self.contents + f"\0{self.ext}\0{facts}".encode()).hexdigest()

    hash = content  # as programs for Triton call it

    def before_passes(self, request: Request) -> str | bytes:
        """The file."""
        return self.contents if self.ext in _BINARY else self.contents.decode()

    def parse_options(self) -> dict[str, Any]:
        """Options that the text itself names: the warps for which its tiles are laid out."""
        warps = stage_facts.warps_of_tiles(self.contents.decode()) if self.ext == "tgir" else None
        return {} if warps is None else {"num_warps": warps}

    def check(self) -> None:
        """The text is what it was."""

    def has_content(self) -> bool:
        """The text says everything."""
        return True

    def files(self) -> dict[str, str]:
        """No function: the places that the text names are a part of it."""
        return {}

    def stages(self, request: Request, later: Mapping[str, Stage]) -> dict[str, Stage]:
        """Parsing, for tile IR simplification, and the stages behind.

        Raises:
            UnsupportedError: the target has no such stage, or no file can stand for it.
        """
        if self.ext == "ttir":

            def run(source: IRSource, metadata: dict[str, Any]) -> ModuleOp:
                metadata["params"] = list(request.specialization.names)
                module = text.parse_module(source.contents.decode(), str(source.path))
                ir_text.refuse_effects(module, request.target)
                united.note_shared_memory(module, request.specialization)
                return simplify(module, metadata, request, pipeline.SIMPLIFY_TEXT)

            first = Stage(run, text.print_module, lambda contents: text.parse_module(contents.decode()))
            return {"ttir": first, "nest": nest_stage(), **later}
        parse = later[self.ext].parse if self.ext in later else None
        if parse is None:
            known = ["ttir", *(extension for extension, stage in later.items() if stage.parse is not None)]
            raise UnsupportedError(
                f"cannot compile {self.path.name} for {request.target}", hint=f"files may end in .{', .'.join(known)}"
            )

        def read(source: IRSource, metadata: dict[str, Any]) -> Any:
            metadata.update(source._facts)
            return parse(source.contents)

        names = list(later)
        behind = names[names.index(self.ext) + 1 :]
        return {self.ext: Stage(read, later[self.ext].render), **{name: later[name] for name in behind}}


def _facts_beside(path: Path) -> dict[str, Any]:
    """What the stages before a file have found out; nothing where there is no file that says so."""
    try:
        facts = json.loads(path.with_suffix(".json").read_bytes())
        if isinstance(facts["name"], str) and isinstance(facts["types"], list):
            return dict(facts)
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return {}


def _facts_in(path: Path, contents: bytes) -> dict[str, Any]:
    """What a file says of its kernel by itself.

    Raises:
        ArgumentError: not enough.
    """
    ext = path.suffix.removeprefix(".")
    try:
        said = contents.decode()
        if ext != "tgir":
            return stage_facts.facts_of(ext, said)
        name, types = ir_text.name_and_types(stage_facts.head_of_tiles(said), str(path))
        params = [f"arg{index}" for index in range(len(types))]
        return {"name": name, "types": types, "params": params, **stage_facts.ANYWHERE}
    except (UnicodeDecodeError, stage_facts.NotEnough) as error:
        why = "it is no text" if isinstance(error, UnicodeDecodeError) else str(error)
    raise ArgumentError(
        f"{path.name} alone does not say what its kernel takes: {why}; {path.stem}.json beside it is no file of facts",
        hint="TILEWRIGHT_DUMP_DIR writes it with the stages; a .ttir needs none",
    )
