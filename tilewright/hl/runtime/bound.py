"""`BoundKernel`: a kernel traced for one kind of arguments, with the configurations compiled so far."""

from __future__ import annotations

import ast
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import errors, lazy_module, shorten_traceback
from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.constexpr import plain
from tilewright.hl.graph.nodes import walk
from tilewright.hl.language import reference
from tilewright.hl.runtime.guard import make_holds
from tilewright.hl.runtime.keeping import keeping, standing_in
from tilewright.hl.runtime.loaded import Loaded
from tilewright.hl.settings import RefMode, Settings
from tilewright.hl.trace.call_effects import Effects
from tilewright.hl.trace.outside import Read
from tilewright.hl.trace.source import Source

if TYPE_CHECKING:
    from tilewright.hl.emit import module as module_text
    from tilewright.hl.passes import counts, decide, fast_math
    from tilewright.hl.trace import host
    from tilewright.hl.tune import cache, driver, journal, spec, tables, warm
else:
    cache = lazy_module("tilewright.hl.tune.cache")
    decide = lazy_module("tilewright.hl.passes.decide")
    driver = lazy_module("tilewright.hl.tune.driver")
    counts = lazy_module("tilewright.hl.passes.counts")
    fast_math = lazy_module("tilewright.hl.passes.fast_math")
    host = lazy_module("tilewright.hl.trace.host")
    module_text = lazy_module("tilewright.hl.emit.module")
    journal = lazy_module("tilewright.hl.tune.journal")
    spec = lazy_module("tilewright.hl.tune.spec")
    tables = lazy_module("tilewright.hl.tune.tables")
    warm = lazy_module("tilewright.hl.tune.warm")


log = logging.getLogger("tilewright.hl.kernel")


class BoundKernel:
    """A kernel for one kind of arguments.

    Args:
        function: the kernel as plain Python.
        source: its text.
        scope: names that it sees besides its own.
        arguments: its arguments, by name.
        settings: how it is treated.
        configs: configurations given with it; empty for the default.
        key: its specialization key.
        outside: what it reads besides its arguments.
        names: what texts of `outside` use.
        table: file of the tables that say which configuration a call has; None for none.

    Attributes:
        traced: the graphs and what they are made of.
        config_spec: the configurations that it has.
        config: the configuration in use; None before the first call.
        run: the host function for it.
        loaded: the module that has it; None where it is chosen at each call, or the kernel is not compiled.
        may_replay: whether calls of it may be made without Python.
        changed: called when other calls begin.
        parameters: names of the arguments.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        source: Source,
        scope: dict[str, Any],
        arguments: dict[str, Any],
        settings: Settings,
        configs: Sequence[Config] = (),
        key: Any = None,
        outside: Sequence[Read] = (),
        names: Mapping[str, Any] | None = None,
        table: Path | None = None,
    ) -> None:
        self.name, self.source, self.scope, self.settings = source.tree.name, source, scope, settings
        self.function, self.outside = function, list(outside)
        self.traced = host.trace_kernel(source, scope, arguments, settings, self.outside)
        self.traced.ignored = settings.ignore_warnings
        if settings.fast_math:
            for graph in self.traced.graphs:
                fast_math.keep_wide(graph.region)
        if self.traced.device.type == "cpu":
            for graph in self.traced.graphs:
                counts.count_matches(graph.region)
        if settings.dot_precision:
            _set_precision(self.traced, settings.dot_precision)
        self._holds = make_holds(list(arguments), self.traced.guards, self.outside, dict(names or {}))
        self.config_spec = spec.ConfigSpec(self.traced)
        self.configs = [self.config_spec.normalize(config) for config in configs]
        self.specialization_key = key if not self.traced.guards else (*(key or ()), *self.traced.guards)
        log.debug("%s: bound%s", self.name, f"; {self.traced.why_constant}" if self.traced.why_constant else "")
        self._ahead = (
            None if table is None else tables.ahead_of(table, self.name, self.config_spec, arguments, settings)
        )
        self.config: Config | None = None
        self.run: Callable[..., Any] = self._first
        self._compiled: dict[Config, Loaded] = {}
        self.loaded: Loaded | None = None
        self.may_replay = False
        self.changed: Callable[[], None] | None = None
        self.parameters = list(arguments)

    def holds(self, args: Sequence[Any]) -> bool:
        """Whether what the trace assumed of the arguments is true of these."""
        return self._holds(*map(plain, args))

    # --- code ------------------------------------------------------------------------------------------

    def default_config(self) -> Config:
        """The configuration that is taken when none was chosen."""
        return self.configs[0] if self.configs else self.config_spec.default_config()

    def _normal(self, config: Config | Mapping[str, Any] | None) -> Config:
        """A configuration checked; None stands for the one in use, or the default."""
        return self.config_spec.normalize(config) if config is not None else self.config or self.default_config()

    def module(
        self,
        config: Config | Mapping[str, Any] | None = None,
        portable: bool = False,
        comments: bool = True,
        around: Callable[[int, str], str] | None = None,
        prefix: str = "",
    ) -> module_text.Module:
        """The generated module for a configuration, with its map of lines; arguments as of `to_code`, and `emit_module`
        for `around` and `prefix`."""
        _refuse_stops(self.traced)
        entries = self.config_spec.facts.entries
        vector = 1 if portable else self.config_spec.facts.machine.vector
        decision = decide.Decision(self._normal(config), list(self.traced.axes), entries, 0, portable, vector)
        try:
            return module_text.emit_module(self.traced, decision, comments, around, prefix)
        except exc.Error as error:
            place = errors.Location.of_line(self.source.file, error.line, self.source.name) if error.line else None
            raise exc.located(error, place or self.source.location(self.source.tree)) from None

    def to_code(
        self,
        config: Config | Mapping[str, Any] | None = None,
        *,
        portable: bool = False,
        output_origin_lines: bool | None = None,
        options: Any = None,
        emit_repro_caller: bool = False,
    ) -> str:
        """The text of the generated module for a configuration.

        Args:
            config: the configuration; None for the one in use, or the default.
            portable: write it for Triton: it imports triton instead of tilewright, and tiles have powers of two.
            output_origin_lines: whether the user's lines stand above what was made of them.
            options: accepted as in Helion, and without meaning here.
            emit_repro_caller: as `options`.

        Raises:
            UnsupportedOperation: `portable` text of something that Triton does not have.
        """
        return self.module(config, portable, output_origin_lines is not False).text

    to_triton_code = to_code

    def compile_config(
        self, config: Config | Mapping[str, Any] | None = None, *, allow_print: bool = True
    ) -> Callable[..., Any]:
        """The host function for a configuration; `allow_print` is accepted as in Helion, and without meaning here."""
        return self._loaded(self._normal(config)).run

    def precompile(self, config: Config | Mapping[str, Any] | None, args: Sequence[Any]) -> list[Any]:
        """Compile a configuration for these arguments without running it, and give its kernels."""
        return self._loaded(self._normal(config)).compile_for(args)

    def _loaded(self, config: Config) -> Loaded:
        found = self._compiled.get(config)
        if found is None:
            module = self.module(config)
            if self.settings.print_output_code:
                print(module.text, file=sys.stderr)
            log.debug("%s: compiled with %r", self.name, config)
            names = {**self.scope, **self.traced.captured}
            found = self._compiled[config] = Loaded(self.name, module, names, self.source.file)
        return found

    # --- choosing --------------------------------------------------------------------------------------

    def set_config(self, config: Config | Mapping[str, Any]) -> None:
        """Use a configuration from now on."""
        chosen = self._normal(config)
        before, self.loaded = self.loaded, self._loaded(chosen)
        self.run, self.config, self.may_replay = self.loaded.run, chosen, True
        if before is not None and self.changed is not None:
            self.changed()

    def ensure_config_exists(self, args: Sequence[Any]) -> None:
        """Choose a configuration if none is in use: the only one given, that of the table beside the source, the best
        known one, what tuning finds, or the default, in this order."""
        if self.config is not None:
            return
        effort = self.settings.autotune_effort
        if len(self.configs) == 1 and not self.settings.force_autotune:
            self.set_config(self.configs[0])
        elif self._ahead is not None and not self.settings.force_autotune:
            self.config = self._ahead.configs[self._ahead.first]
            self.run = self._ahead.run([one.arg for one in self.source.tree.args.args], self.compile_config)
        elif effort == "none" and not self.settings.force_autotune:
            self.set_config(self.default_config())
        else:
            tunes = self.settings.force_autotune or len(self.configs) > 1 or effort in ("quick", "full")
            known = None if self.settings.force_autotune else self.known_config(whole=tunes)
            if known is None and tunes:
                self.autotune(args)
            else:
                self.set_config(known or self.default_config())

    def autotune(self, args: Sequence[Any], *, force: bool = True, effort: str | None = None) -> Config:
        """Find the fastest configuration and use it: among those given with the kernel, else by a search.

        Args:
            args: arguments to time with; what the kernel changes of them is put back.
            force: tune even where the best configuration is known.
            effort: "quick" or "full"; None for what the settings say.

        Raises:
            NoConfigFound: none works.
        """
        known = None if force else self.known_config(whole=True)
        if known is None:
            wanted = effort or self.settings.autotune_effort
            search = self._driver(tuple(map(plain, args)))
            known = search.among(self.configs) if self.configs else search.search(wanted)
            search.report(known)
            if not self.settings.skip_cache:
                about = {"kernel": self.name, "milliseconds": search.times.get(known)}
                more = {"interrupted": True} if search.ended == "interrupted" else {}
                cache.write(self.get_cached_path(), known, about | more)
        self.set_config(known)
        return known

    def _driver(self, args: Sequence[Any]) -> driver.Driver:
        """A tuning that goes on where the last one was interrupted, or begins with what kernels like this have."""
        if self.settings.skip_cache:
            return driver.Driver(self, args)
        path = self.get_cached_path()
        text, asked = ast.unparse(self.source.tree), str(self.settings.autotune_random_seed)
        head = cache.head(self.name, text, self.specialization_key, self.config_spec, {"seed": asked})
        begun = journal.Journal(path.with_suffix(journal.SUFFIX), head)
        starts = [] if self.configs else warm.starts(path.parent, head, self.config_spec, begun.id)
        return driver.Driver(self, args, begun, starts)

    def get_cached_path(self, config: Config | None = None) -> Path:
        """The file in which the best configuration is kept."""
        return cache.path_of(ast.unparse(self.source.tree), self.specialization_key, self.config_spec, self.configs)

    def known_config(self, whole: bool = False) -> Config | None:
        """The best configuration that tuning found before, if it is still one; `whole`: not in a search that was
        interrupted."""
        if self._ahead is not None:
            return self._ahead.configs[self._ahead.first]
        found = None if self.settings.skip_cache else cache.read(self.get_cached_path(), whole)
        try:
            return None if found is None else self.config_spec.normalize(found)
        except exc.InvalidConfig:
            return None

    def format_kernel_decorator(self, config: Config | None = None, settings: Settings | None = None) -> str:
        """The line to put above the kernel for a configuration."""
        return driver.decorator(config or self.config or self.default_config(), settings or self.settings)

    def run_ref(self, *args: Any, mode: RefMode = RefMode.EAGER, gradients: bool = False) -> Any:
        """Run the kernel as plain Python on these arguments.

        Args:
            args: the arguments.
            mode: with whole ranges as tiles, or with tiles of the configuration's sizes.
            gradients: whether PyTorch records what happens, so that gradients flow.
        """
        config = None if mode is RefMode.EAGER else self._normal(None)
        registers = config is not None and any(axis.kind == "block" for axis in self.traced.slots)
        function = keeping(self.function, self.source) if registers else self.function
        return reference.run(standing_in(function), args, self._reference(config), gradients)

    @property
    def effects(self) -> Effects:
        """What a call does besides returning."""
        return self.traced.effects

    def run_host(self, args: Sequence[Any]) -> Any:
        """Run the host code alone on arguments that this is bound to; see `Kernel.run_host`."""
        return reference.run(self.function, args, reference.HostOnly(self.as_reference))

    def as_reference(self) -> reference.Reference:
        """The sizes of tiles of the configuration that calls have, as far as that is known."""
        return self._reference(self._normal(self.config or self.known_config()))

    def _reference(self, config: Config | None) -> reference.Reference:
        """The sizes of tiles under a configuration; whole ranges for None. Rows of different lengths run one by one."""
        loops = [node for graph in self.traced.graphs for node in walk(graph.region) if node.op == "loop"]
        axes = [axis for node in loops for axis in node.kwargs["axes"]]
        rows = {atom for axis in axes if axis.kind == "jagged" for dim in axis.parent.dims for atom in dim.atoms}
        decision = None if config is None else decide.Decision(config, self.traced.axes)
        blocks = {
            node.line: [
                1 if axis.size in rows else None if decision is None else decision.block(axis)
                for axis in node.kwargs["axes"]
            ]
            for node in reversed(loops)
        }
        if decision is None:
            return reference.Reference(blocks, rounds=self.traced.rounds)
        registered = [decision.block(axis) for axis in self.traced.slots if axis.kind == "block"]
        return reference.Reference(blocks, registered, decision.config, self.traced.rounds)

    def __repr__(self) -> str:
        return f"<hl.BoundKernel {self.name} with {self.config or 'no configuration yet'}>"

    def __reduce__(self) -> Any:
        hint = "pickle the kernel, or the configuration that it has"
        raise errors.NotPickledError(f"a binding of {self.name} is not pickled", hint=hint)

    def __call__(self, *args: Any) -> Any:
        try:
            return self.run(*map(plain, args))
        except Exception as error:
            shorten_traceback(error)
            raise

    def _first(self, *args: Any) -> Any:
        """The first call chooses the configuration."""
        mode = self.settings.ref_mode
        if mode is not RefMode.OFF:
            return self.run_ref(*args, mode=mode)
        _refuse_stops(self.traced)  # before a search compiles it many times
        self.ensure_config_exists(args)
        return self.run(*args)


def _refuse_stops(traced: host.Traced) -> None:
    if traced.stop is None:
        return
    line, _, column, end = traced.stop
    source = traced.source
    raise exc.BreakpointInDeviceLoopRequiresInterpret(
        "breakpoint() stops nothing in a kernel that is compiled",
        errors.Location(source.file, line or 0, column or 0, end, function=source.tree.name),
        hint="run it as Python: @hl.kernel(ref_mode=hl.RefMode.TILED), or TILEWRIGHT_HL_INTERPRET=1 for all kernels",
    )


def _set_precision(traced: host.Traced, precision: str) -> None:
    """What products whose code does not say are computed with."""
    for graph in traced.graphs:
        for node in walk(graph.region):
            if node.op == "product":
                node.kwargs.setdefault("precision", precision)
