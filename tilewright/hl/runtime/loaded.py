"""A generated module, executed: its host function, and how to compile its kernels without running them."""

from __future__ import annotations

import ast
import linecache
import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import tilewright
from tilewright import errors, lazy_module, syntax
from tilewright.hl import exc

if TYPE_CHECKING:
    from tilewright.hl.emit import module as module_text
else:
    module_text = lazy_module("tilewright.hl.emit.module")

GENERATED = "tilewright_hl_generated"
"""Name of the module of generated kernels."""

Launch = Callable[[Any, Any, Sequence[Any], Mapping[str, Any]], None]


class Loaded:
    """An executed module.

    Args:
        name: name of its host function.
        module: its text, with its map of lines.
        scope: names that the host function sees besides the module's own.
        file: the user's file.

    Attributes:
        run: the host function.
        names: what it sees.
        generated: the name of its file.
    """

    def __init__(self, name: str, module: module_text.Module, scope: dict[str, Any], file: str) -> None:
        text = module.text
        self.generated = f"<hl {name} {zlib.crc32(text.encode()):08x}>"
        errors.Location.say_generated(self.generated, file, module.origins)
        linecache.cache[self.generated] = len(text), None, text.splitlines(keepends=True), self.generated
        self.names = {**scope, "__name__": GENERATED}
        exec(compile(text, self.generated, "exec"), self.names)
        self._function: FunctionType = self.names[name]
        self.run = self.placed(self._function)

    def host_tree(self) -> ast.FunctionDef:
        """The text of the host function, which is the last of the module."""
        lines = linecache.cache[self.generated][2]  # type: ignore[misc]
        first = max(at for at, line in enumerate(lines) if line.startswith(f"def {self._function.__name__}("))
        (tree,) = syntax.parse("".join(lines[first:])).body
        assert isinstance(tree, ast.FunctionDef)
        return ast.increment_lineno(tree, first)

    def compile_for(self, args: Sequence[Any]) -> list[Any]:
        """Compile the kernels for these arguments, and give them: the host function runs, its launches only compile."""
        made: list[Any] = []

        def launch(kernel: Any, grid: Any, given: Sequence[Any], options: Mapping[str, Any]) -> None:
            made.append(kernel.warmup(*given, grid=grid, **options))

        self.run_with(launch, args)
        return made

    def run_with(self, launch: Launch, args: Sequence[Any]) -> Any:
        """Run the host function with `launch` in the place of each launch: it gets kernel, grid, arguments, options."""
        names = {
            name: _Launched(value, launch) if isinstance(value, tilewright.JITFunction) else value
            for name, value in self.names.items()
        }
        host = self._function
        return self.placed(FunctionType(host.__code__, names, host.__name__, host.__defaults__))(*args)

    def placed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, whose errors of compiling and launching generated code point at the user's line."""

        def run(*args: Any) -> Any:
            try:
                return function(*args)
            except errors.DeviceError as error:
                raise exc.WrongDeviceError(error.message, self._launching(error), hint=error.hint) from error
            except errors.CompilationError as error:
                place = error.location
                if place is None or place.file != self.generated:
                    raise
                message = "the generated code does not compile:\n" + place.render()
                raise exc.TritonError(message, place.written(), hint=error.hint) from error

        return run

    def _launching(self, error: Exception) -> errors.Location | None:
        """The user's line whose launch raised `error`."""
        frames = traceback.walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_code.co_filename == self.generated]
        place = errors.Location(self.generated, lines[0] if lines else 0, function=self._function.__name__)
        user = place.written()
        return None if user is place else user


class _Launched:
    """A kernel whose launches somebody else does."""

    def __init__(self, kernel: Any, launch: Launch) -> None:
        self._kernel, self._launch = kernel, launch

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **options: self._launch(self._kernel, grid, args, options)
