"""What a request compiles: a kernel, or a text that defines one. (Files of tile IR: `ir_source.py`.)"""

from __future__ import annotations

import importlib
import linecache
import re
import sys
import types
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.base.callable import BlockFunction
from tilewright.base.errors import ArgumentError, MissingKernelSourceError
from tilewright.base.knobs import knobs
from tilewright.base.library import hashlib
from tilewright.compile.function import KernelFunction
from tilewright.compile.lazy_compiler import effects, entry, levels, nests, pipeline, text, united
from tilewright.compile.parameters import parameter_specs
from tilewright.compile.request import Request
from tilewright.compile.shared import Shared
from tilewright.compile.specialize import Specialization
from tilewright.devices.registry import backend_of
from tilewright.frontend.hashing import check_globals, content_hash, lasting_hash, source_files, without_content
from tilewright.passes import printing
from tilewright.passes.stages import Stage

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


class Naming(NamedTuple):
    """What the `repr` of a kernel names a variant by.

    Args:
        constants: value of each compile-time constant by parameter name.
        signature: type by parameter name.
    """

    constants: Mapping[str, Any]
    signature: Mapping[str, Any]

    @classmethod
    def of(cls, specialization: Specialization) -> Naming:
        """The facts of a specialisation; constants inside of tuples are left out."""
        names = specialization.names
        constants = {names[path[0]]: value for path, value in specialization.constants.items() if len(path) == 1}
        return cls(constants, specialization.signature)


class FunctionSource:
    """A kernel. It is pickled by the name under which its module holds it.

    Args:
        fn: the kernel.

    Attributes:
        ext: of the first stage.
        keeps_promises: hints are looked at, not relied on.
    """

    ext = "ttir"
    keeps_promises = False

    def __init__(self, fn: BlockFunction) -> None:
        self.fn = fn

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return str(self.fn.fn.__name__)

    def name_for(self, specialization: Specialization) -> str:
        """Name of the compiled function: what the kernel's `repr` makes of the specialisation, as an identifier."""
        rename = getattr(self.fn, "repr", None)
        if rename is None:
            return self.name
        shown = str(rename(Naming.of(specialization)))
        return re.sub(r"[^A-Za-z0-9_$]", "_", shown) or self.name

    def content(self) -> str:
        """Hash of its source, of everything that it calls, and of the globals that it uses.

        Its place in its file counts too: line tables and the texts of assertions in the code name it.
        """
        return content_hash(self.fn)

    def check(self) -> None:
        """Raise GlobalsChangedError if a variable that the kernel uses has changed since it was first compiled."""
        check_globals(self.fn)

    def has_content(self) -> bool:
        """Whether every constant that the kernel uses has a key of its own."""
        return not without_content(self.fn)

    def files(self) -> dict[str, str]:
        """Paths of the files in which the kernel and what it uses are written."""
        return source_files(self.fn)

    def stages(self, request: Request, later: Mapping[str, Stage]) -> dict[str, Stage]:
        """Front end and simplification, and the back end's stages."""

        def run(source: FunctionSource, metadata: dict[str, Any]) -> ModuleOp:
            built = source._built(request)
            for message in built.warnings:
                warnings.warn(message, stacklevel=2)
            metadata["params"] = [param.name for param in built.params]
            united.note_shared_memory(built.module, request.specialization)
            return simplify(built.module, metadata, request)

        first = Stage(run, text.print_module, lambda contents: text.parse_module(contents.decode()))
        return {"ttir": first, "nest": nest_stage(), **later}

    def before_passes(self, request: Request) -> str:
        """Tile IR as the front end makes it."""
        return text.print_module(self._built(request).module)

    def _built(self, request: Request) -> entry.BuiltKernel:
        specs, keeps = parameter_specs(request.specialization), self.keeps_promises
        return entry.build_module(self.fn, specs, request.options, request.target, request.name, keeps_promises=keeps)

    def __reduce__(self) -> tuple[Any, ...]:
        module, name = self.fn.fn.__module__, self.fn.fn.__qualname__
        if _named(sys.modules.get(module), name) is not self.fn:
            raise ArgumentError(
                f"kernel `{self.name}` cannot be sent to another process: {module} has no {name} that is this kernel",
                hint="define it at the top of a module, or send its text as a TextSource",
            )
        return _import_source, (module, name)


def _named(module: Any, qualified: str) -> Any:
    """What a module holds under a qualified name, as a kernel; tuners and heuristics are looked through."""
    found = module
    for part in qualified.split("."):
        found = getattr(found, part, None)
    while found is not None and not isinstance(found, KernelFunction):
        found = getattr(found, "fn", None)
    return found


def _import_source(module: str, name: str) -> FunctionSource:
    found = _named(importlib.import_module(module), name)
    if found is None:
        raise MissingKernelSourceError(
            f"there is no kernel {name} in the module {module} of the process that was sent it",
            hint="define it in a module that both processes can import",
        )
    return FunctionSource(found)


class TextSource(FunctionSource):
    """A kernel as the text of a module that defines it. It is pickled as text, and executed where it is wanted.

    Args:
        text: Python; what it imports must be there for whoever compiles it.
        kernel: name of the kernel in it.

    Raises:
        ArgumentError: the text has no such kernel.
    """

    def __init__(self, text: str, kernel: str) -> None:
        self.text = text
        module = _module_of(text)
        found = _named(module, kernel)
        if found is None:
            raise ArgumentError(f"the text defines no kernel {kernel!r}", hint="decorate it with @tilewright.jit")
        super().__init__(found)

    def content(self) -> str:
        """As of any kernel, without its place: of generated text nobody asks on which line a kernel stood."""
        return lasting_hash(self.fn)

    def __reduce__(self) -> tuple[Any, ...]:
        return TextSource, (self.text, self.name)


_modules: dict[str, types.ModuleType] = {}  # of texts, by name
_executing: Shared[types.ModuleType] = Shared()


def _module_of(text: str) -> types.ModuleType:
    """The module that a text defines, made once per process; its lines can be shown in errors."""
    name = f"tilewright_text_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return _modules.get(name) or _executing.make(name, lambda: _modules.get(name) or _execute(name, text))


def _execute(name: str, text: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__file__ = f"<{name}>"
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(keepends=True), module.__file__)
    sys.modules[name] = module
    try:
        exec(compile(text, module.__file__, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    _modules[name] = module
    return module


def nest_stage() -> Stage:
    """The nest of loops, a text for people and tests, made where somebody asks for it; the module passes on."""
    return Stage(lambda module, _: module, lambda module: nests.nest_of_module(module))


def simplify(module: ModuleOp, metadata: dict[str, Any], request: Request, passes: Any = None) -> ModuleOp:
    """Run the passes over tile IR; with the knob `compilation.verify`, hold the level's rules after each of
    them, and with `compilation.print_passes` show it.

    Args:
        module: tile IR, changed in place.
        metadata: told through what the kernel stores.
        request: whose options and target say whether products are fused with the sums that take them.
        passes: default is `SIMPLIFY`.
    """
    fuses = request.options.enable_fp_fusion and backend_of(request.target).fuses(request.target)
    passes = pipeline.passes_for(fuses, pipeline.SIMPLIFY if passes is None else passes)
    after = (lambda _, changed: levels.verify(changed)) if knobs.compilation.verify else None
    told = printing.printer(request.name, text.print_module)
    if told is not None:
        told("the front end", module, True)
    pipeline.run_passes(module, passes, after, told)
    metadata.update(effects.stores_of(module))
    return module
