"""A compiled kernel: its code, the facts and texts of its compilation, and launches of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, cast

from tilewright.backends.protocol import Launch
from tilewright.base.decision import Decision, from_records
from tilewright.base.errors import ArgumentError, NotPickledError, PosingError
from tilewright.base.grids import Grid
from tilewright.base.hooks import Launched, LazyDict, settings_changed
from tilewright.base.knobs import knobs
from tilewright.base.target import Placement, Target
from tilewright.compile.grid import grid3
from tilewright.compile.loading import files_of, load_code
from tilewright.compile.metadata import Metadata, StageTexts
from tilewright.compile.run import Unsaved, make_call, make_run, older_run
from tilewright.compile.slots import plain_values, slot_values
from tilewright.compile.specialize import CONSTEXPR, Specialization
from tilewright.devices.arrays import HOST, read
from tilewright.devices.places import place_of
from tilewright.devices.registry import backend_of


def _chain(name: str, where: str) -> property:
    """The knob `runtime.<name>`, the chain of hooks `where`, as an attribute that can be set."""

    def read(_: Any) -> Any:
        return getattr(knobs.runtime, name)

    def write(_: Any, hook: Any) -> None:
        setattr(knobs.runtime, name, hook)

    return property(read, write, doc=f"The chain of hooks {where}, which is the knob's.")


def _fact(name: str, doc: str) -> property:
    """An entry of the metadata as an attribute."""
    return property(lambda kernel: kernel.metadata[name], doc=doc)


class _HooksOfLaunches(type):
    """Launch hooks as attributes of the class of compiled kernels, where they were before they were knobs."""

    launch_enter_hook = _chain("launch_enter_hook", "ahead of launches")
    launch_exit_hook = _chain("launch_exit_hook", "behind launches")


@dataclass(eq=False)
class CompiledKernel(metaclass=_HooksOfLaunches):
    """A kernel compiled for one specialisation. It can be pickled; the copy loads its code with `_init_handles`.

    Args:
        name: name of the kernel function.
        target: what it was compiled for.
        metadata: facts about the code: signature, scratch or shared bytes, stored parameters, options.
        hash: key in the disk cache.
        asm: text of each stage ("ttir", "nest", "loops", "llir"; on a GPU "ttir", "nest", "tgir", "llir",
            "ptx") and the bytes of the
            last ("obj", "cubin"). What is not there (texts of modules; after a load from the disk cache all but the
            last) is made when it is asked for, by running the stages. "sass" is made of the cubin where nvdisasm is
            found; "source" is what the first stage starts with, and "ttgir" stands for "tgir".
        seconds: compile time per stage; empty when loaded from disk.
        total_seconds: time from the request to loaded code.
        from_disk: whether the disk cache had it.
        module: the loaded code.
        src: the kernel, or the `ASTSource` that was compiled.
        specialization: types and keys that it was compiled for.
        otherwise: compiles the kernel for values of these types that this one does not take; None if it takes all.
    """

    name: str
    target: Target
    metadata: dict[str, Any]
    hash: str
    asm: Mapping[str, str | bytes] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    total_seconds: float = 0.0
    from_disk: bool = False
    module: Any = None
    src: Any = None
    specialization: Specialization | None = None
    otherwise: Callable[[], CompiledKernel] | None = None
    _launchers: dict[Any, Any] = field(default_factory=Unsaved, repr=False)
    _slots: tuple[int, ...] | None = None  # parameters with a slot, once known; () if a tuple has one
    _last: tuple[int | None, Any] = (None, None)  # device and launcher of the last launch

    launch_enter_hook = _chain("launch_enter_hook", "ahead of launches")
    launch_exit_hook = _chain("launch_exit_hook", "behind launches")

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What was done to the kernel and what was not, with the reasons; see `tilewright explain`."""
        return from_records(self.metadata.get("decisions", ()))

    @property
    def binary(self) -> bytes:
        """The object file, or the cubin."""
        image = self.asm[backend_of(self.target).BINARY]
        assert isinstance(image, bytes)
        return image

    n_regs = _fact("n_regs", "Registers per GPU thread; 0 on a CPU.")
    n_spills = _fact("n_spills", "Bytes spilled per GPU thread; 0 on a CPU.")
    n_max_threads = _fact("n_max_threads", "GPU threads of a program; 1 on a CPU.")
    occupancy = _fact("occupancy", "Share of a GPU multiprocessor's warps that the kernel keeps busy; 1 on a CPU.")
    num_warps = _fact("num_warps", "The option; on a CPU, where it changes no code, that of the first launch.")
    num_stages = _fact("num_stages", "The option, as `num_warps`.")
    num_ctas = _fact("num_ctas", "The option.")
    shared = _fact("shared", "Bytes of shared memory of a program; 0 on a CPU.")
    clusterDims = _fact("cluster_dims", "Blocks that Triton would share a program out to, along x, y and z.")

    @property
    def packed_metadata(self) -> tuple[int, int, int]:
        """(num_warps, num_ctas, shared)."""
        return self.metadata["num_warps"], self.metadata["num_ctas"], self.metadata["shared"]

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        call: Callable[..., Any] | None = self._launchers.get("call")
        if call is None:
            call = self._launchers["call"] = make_call(self, self._launch)
        return MethodType(self._launch_watched if _are_watched else call, grid)

    def _launch(self, grid: Grid, *args: Any, stream: Any = None) -> Launch:
        """Launch over `grid` with an argument for every parameter; those of compile-time constants are ignored, and may
        be left out all together, as in launches that are written for Triton before 3.3.

        Returns:
            the function that launched, or would have over a grid that is not empty.
        """
        assert self.specialization is not None
        names = self.specialization.names
        args = args if len(args) == len(names) else self._with_constants(args)
        if self._slots is None:
            paths = self.specialization.runtime_paths
            self._slots = tuple(path[0] for path in paths) if all(len(path) == 1 for path in paths) else ()
        found = plain_values(args, self._slots) if self._slots and stream is None else None
        if found is not None and (found[1] == HOST) is (self.target.backend == "cpu"):
            if self._last[0] != found[1]:
                self._last = found[1], self.launcher(Placement(found[1]))
            gx, gy, gz = grid3(grid)
            launch: Launch = self._last[1]
            if gx and gy and gz:
                launch(gx, gy, gz, *found[0])
            return launch
        arguments = tuple(read(value, name) for value, name in zip(args, names, strict=True))
        launch = self.launcher(Placement(place_of(names, arguments).device_for(self.target, self.name), stream))
        gx, gy, gz = grid3(grid)
        if gx * gy * gz:
            launch(gx, gy, gz, *slot_values(arguments, self.specialization.runtime_paths))
        return launch

    @property
    def _launch_watched(self) -> Callable[..., None]:
        """A launch between the launch hooks, `(grid, *args, stream=None)`."""

        def launch(grid: Grid, *args: Any, stream: Any = None) -> None:
            assert self.specialization is not None
            given = args if len(args) == len(self.specialization.names) else self._with_constants(args)
            constants = {name: key for name, _, kind, key in self.specialization.leaves() if kind == CONSTEXPR}
            facts = LazyDict({"name": self.name, "function": self.module, "stream": stream or 0, "grid": grid})
            arguments = {**dict(zip(self.specialization.names, given, strict=True)), **constants}
            fn = self.src if hasattr(self.src, "params") else getattr(self.src, "fn", None)  # or an `ASTSource`
            facts.subject = Launched(fn, self, arguments, grid)
            knobs.runtime.launch_enter_hook(facts)
            try:
                self._launch(grid, *args, stream=stream)
            finally:
                knobs.runtime.launch_exit_hook(facts)

        return launch

    def _with_constants(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments of a launch that leaves compile-time constants out, with None in their places."""
        assert self.specialization is not None
        names = self.specialization.names
        params: Any = getattr(self.src, "params", None) or getattr(getattr(self.src, "fn", None), "params", ())
        left_out = [param.is_constexpr for param in params]
        if len(left_out) != len(names) or len(args) != left_out.count(False):
            raise ArgumentError(f"{self.name}: takes {len(names)} arguments ({', '.join(names)}), got {len(args)}")
        given = iter(args)
        return tuple(None if out else next(given) for out in left_out)

    def launcher(self, place: Placement) -> Launch:
        """`launch(gx, gy, gz, *runtime_values)` for launches that go to `place`; made once."""
        launch: Launch | None = self._launchers.get(place)
        if launch is None:
            otherwise = None if self.otherwise is None else lambda: self.for_all_values().launcher(place)
            launch = backend_of(self.target).launcher(self.module, self.metadata, place, otherwise)
            self._launchers[place] = launch
        return launch

    def for_all_values(self) -> CompiledKernel:
        """The kernel that takes all values of its arguments: this one, or one that is compiled now."""
        if self.otherwise is None:
            return self
        found: CompiledKernel | None = self._launchers.get("for all values")
        if found is None:
            found = self._launchers["for all values"] = self.otherwise()
        return found

    @property
    def run(self) -> Launch:
        """`run(gx, gy, gz, stream, function, packed_metadata, launch_metadata, enter, exit, *arguments)`: a launch with
        an argument for every parameter, of the very kinds that were compiled for."""
        run: Launch | None = self._launchers.get("run")
        if run is None:
            run = self._launchers["run"] = make_run(self)
        return run

    @property
    def c_wrapper(self) -> Callable[..., None]:
        """`run` as Triton 2.x has it: grid, resources, stream, function, hooks, the kernel, and the arguments."""
        return older_run(self)

    @property
    def kernel(self) -> bytes:
        """The last stage: the object file, or the cubin."""
        return self.binary

    @property
    def function(self) -> Any:
        """The loaded code, as launch hooks are given it."""
        return self.module

    cu_function = cu_module = function  # as Triton 2.x calls it

    @property
    def metadata_group(self) -> dict[str, str]:
        """Path of the entry of the disk cache that has the kernel, by file name; empty if there is none."""
        return files_of(self.name, self.target, self.hash)

    def launch_metadata(self, grid: Grid, stream: Any, *args: Any) -> LazyDict | None:
        """What launch hooks are told of a launch; None while there are none."""
        if not knobs.runtime.launch_enter_hook and not knobs.runtime.launch_exit_hook:
            return None
        return LazyDict({"name": self.name, "function": self.module, "stream": stream, "grid": grid})

    def _init_handles(self) -> None:
        """Load the code if another process made this object."""
        if not isinstance(self.metadata, Metadata):  # tools pass it on as a named tuple
            self.metadata = Metadata(cast(Any, self.metadata)._asdict())
        if self.module is None:
            if isinstance(self.asm, StageTexts):
                self.asm.belong(self)
            load_code(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "specialization" not in state:  # Triton's class of this name, by whose name Tilewright poses
            raise PosingError(
                "a worker process has compiled a kernel with the real Triton: it imports triton without the switch",
                hint="start workers after tilewright.as_triton(), or with TILEWRIGHT_AS_TRITON=1 and tilewright "
                "imported ahead of triton; the distribution tilewright-triton does that for a whole environment",
            )
        self.__dict__.update(state)

    def __getstate__(self) -> dict[str, Any]:
        if self.module is None:  # let go, as tools do that take kernels from one process to another
            return {**self.__dict__, "otherwise": None}
        raise NotPickledError(
            f"the compiled kernel {self.name} is code in the memory of this process and cannot be pickled",
            hint="send the kernel itself, whose code another process finds on disk, or write a bundle with "
            "tilewright.write_bundle",
        )

    def __copy__(self) -> CompiledKernel:
        return self

    def __deepcopy__(self, memo: Any) -> CompiledKernel:
        return self

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name} for {self.target}>"


_are_watched = False  # whether there are launch hooks


def _see_hooks() -> None:
    global _are_watched
    _are_watched = bool(knobs.runtime.launch_enter_hook.calls or knobs.runtime.launch_exit_hook.calls)


settings_changed.add(_see_hooks)
