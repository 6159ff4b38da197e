"""`BoundKernel`: a kernel traced for one kind of arguments, with the configurations compiled so far."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright import errors
from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.constexpr import plain
from tilewright.hl.emit.module import Module, emit_module
from tilewright.hl.passes.decide import Decision
from tilewright.hl.passes.fast_math import keep_wide
from tilewright.hl.runtime.guard import make_holds
from tilewright.hl.settings import Settings
from tilewright.hl.trace.host import trace_kernel
from tilewright.hl.trace.outside import Read
from tilewright.hl.trace.source import Source
from tilewright.hl.tune.spec import ConfigSpec


class BoundKernel:
    """A kernel for one kind of arguments.

    Args:
        source: the kernel's text.
        scope: names that it sees besides its own.
        arguments: its arguments, by name.
        settings: how it is treated.
        configs: configurations given with it; empty for the default.
        outside: what it reads besides its arguments.
        names: what texts of `outside` use.

    Attributes:
        traced: the graphs and what they are made of.
        config_spec: the configurations that it has.
        run: the host function for the configuration in use.
    """

    def __init__(
        self,
        source: Source,
        scope: dict[str, Any],
        arguments: dict[str, Any],
        settings: Settings,
        configs: Sequence[Config] = (),
        outside: Sequence[Read] = (),
        names: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.scope, self.settings, self.configs = source.tree.name, scope, settings, configs
        self.traced = trace_kernel(source, scope, arguments, settings, list(outside))
        if settings.fast_math:
            for graph in self.traced.graphs:
                keep_wide(graph.region)
        self.outside = list(outside)
        self._holds = make_holds(list(arguments), self.traced.guards, self.outside, dict(names or {}))
        self.config_spec = ConfigSpec(self.traced)
        self.run: Callable[..., Any] = self._first
        self._compiled: dict[Config, Callable[..., Any]] = {}

    def holds(self, args: Sequence[Any]) -> bool:
        """Whether what the trace assumed of the arguments is true of these."""
        return self._holds(*map(plain, args))

    def default_config(self) -> Config:
        """The configuration that is taken when none was chosen."""
        return self.configs[0] if self.configs else self.config_spec.default_config()

    def module(self, config: Config | Mapping[str, Any] | None = None) -> Module:
        """The generated module for a configuration, with its map of lines."""
        chosen = self.config_spec.normalize(self.default_config() if config is None else config)
        try:
            return emit_module(self.traced, Decision(chosen, list(self.traced.axes), self.config_spec.facts.entries))
        except exc.Error as error:
            source = self.traced.source
            place = errors.Location(source.file, error.line, function=source.name) if error.line else None
            raise exc.located(error, place or source.location(source.tree)) from None

    def to_code(self, config: Config | Mapping[str, Any] | None = None) -> str:
        """The text of the generated module for a configuration."""
        return self.module(config).text

    to_triton_code = to_code

    def compile_config(self, config: Config | Mapping[str, Any] | None = None) -> Callable[..., Any]:
        """The host function for a configuration."""
        chosen = self.config_spec.normalize(self.default_config() if config is None else config)
        found = self._compiled.get(chosen)
        if found is None:
            found = self._compiled[chosen] = self._execute(self.module(chosen))
        return found

    def _execute(self, module: Module) -> Callable[..., Any]:
        if self.settings.print_output_code:
            print(module.text)
        name = f"<hl {self.name} {hash(module.text) & 0xFFFFFFFF:08x}>"
        linecache.cache[name] = len(module.text), None, module.text.splitlines(keepends=True), name
        namespace = {**self.scope, **self.traced.captured, "__name__": "tilewright_hl_generated"}
        exec(compile(module.text, name, "exec"), namespace)
        function: Callable[..., Any] = namespace[self.name]
        return _with_places(function, module, name, self.traced.source.file)

    def set_config(self, config: Config | Mapping[str, Any]) -> None:
        """Use a configuration from now on."""
        self.run = self.compile_config(config)

    def __call__(self, *args: Any) -> Any:
        return self.run(*map(plain, args))

    def _first(self, *args: Any) -> Any:
        """The first call chooses the configuration."""
        self.run = self.compile_config()
        return self.run(*args)


def _with_places(function: Callable[..., Any], module: Module, generated: str, file: str) -> Callable[..., Any]:
    """`function`, whose compile errors in generated code point at the user's line."""

    def run(*args: Any) -> Any:
        try:
            return function(*args)
        except errors.CompilationError as error:
            place = error.location
            if place is None or place.file != generated:
                raise
            origin = module.origins[place.line - 1]
            user = errors.Location(file, origin) if origin else place
            raise exc.TritonError("the generated code does not compile:\n" + place.render(), user) from error

    return run
