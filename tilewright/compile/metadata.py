"""Facts about compiled code and the texts of its stages, read as Triton's are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.base.version import __version__
from tilewright.devices.registry import USUAL

_NONE_ON_CPU = (
    "shared", "tmem_size", "global_scratch_size", "profile_scratch_size", "n_regs", "n_spills"
)  # fmt: skip
_OTHER_NAMES = {"ttgir": "tgir"}
_ONE_ON_CPU = ("n_max_threads", "occupancy")


class Metadata(dict[str, Any]):
    """A dictionary whose entries are attributes too: `metadata.shared` is `metadata["shared"]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the metadata of this kernel has no {name!r}; it has {', '.join(self)}") from None


def describe_kernel(
    asked: Mapping[str, Any], options: Options, target: Target, hash: str, found: dict[str, Any]
) -> Metadata:
    """What the back end found out, with the target, all options (usual values for those of other back ends), and the
    resources that a CPU kernel never takes.

    Args:
        asked: options by name as they were asked for.
        options: of the compilation.
        target: of the compilation.
        hash: of the kernel.
        found: facts from the stages.
    """
    common = {"hash": hash, "target": target, "warp_size": target.warp_size, "tilewright_version": __version__}
    usual = {**dict.fromkeys(_NONE_ON_CPU, 0), **dict.fromkeys(_ONE_ON_CPU, 1)}
    facts = {**usual, **USUAL, **asked, **asdict(options), **common, **found}
    return Metadata({**facts, "cluster_dims": (facts["num_ctas"], 1, 1)})


class StageTexts(Mapping[str, str | bytes]):
    """Artifacts of the stages by extension; what is not there is made when it is asked for.

    Args:
        known: artifacts that are there.
        make: runs the stages up to one, and gives what they made.
        names: extensions of the stages, in order.
        derive: from a kernel and its artifacts to functions that make further ones, by extension; pickled by name.
    """

    def __init__(
        self,
        known: Mapping[str, str | bytes],
        make: Callable[[str], Mapping[str, str | bytes]],
        names: Sequence[str],
        derive: Callable[[Any, Mapping[str, str | bytes]], Mapping[str, Callable[[], str | bytes]]],
    ) -> None:
        self._known, self._make, self._names, self._derive = dict(known), make, tuple(names), derive
        self._derived: dict[str, Callable[[], str | bytes]] = {}

    def belong(self, kernel: Any, source: Callable[[], str | bytes] | None = None) -> StageTexts:
        """These artifacts, as those of a kernel: what can be derived of it is there.

        Args:
            kernel: the compiled kernel.
            source: makes what stands before the first stage; None where that is not known.
        """
        self._derived = {**self._derive(kernel, self), **({} if source is None else {"source": source})}
        return self

    def __reduce__(self) -> tuple[type[StageTexts], tuple[Any, ...]]:
        """Another process gets what is there, and cannot run the stages again."""
        return StageTexts, (self._known, dict, tuple(self._known), self._derive)

    def __getitem__(self, name: str) -> str | bytes:
        name = self._here(name)
        if name not in self._known:
            if name in self._derived:
                self._known[name] = self._derived[name]()
            elif name in self._names:
                self._known = {**self._make(name), **self._known}
            else:
                raise KeyError(name)
        return self._known[name]

    def made_anew(self, until: str) -> Mapping[str, str | bytes]:
        """Artifacts of the stages up to one, which are run for it whatever is known already."""
        return self._make(until)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._names, *self._known)))

    def __len__(self) -> int:
        return len({*self._names, *self._known})

    def __contains__(self, name: object) -> bool:
        return self._here(name) in (*self._names, *self._known) or (name == "source" and name in self._derived)

    def _here(self, name: Any) -> Any:
        """The name here of a stage that may be asked for by Triton's."""
        return _OTHER_NAMES.get(name, name) if name not in self._known else name
