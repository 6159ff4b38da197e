"""The launch of a configuration: the one place that says with which arguments it is compiled, timed, checked, sent to
another process, and made in the end.

::

    enter:  records as they were passed -> Config.pre_hook -> the autotuner's pre_hook
            `fn.run` | `fn.warmup` | `remote_launch`: heuristics and inner autotuners, then types and alignments
    leave:  the autotuner's post_hook

What a launch is compiled for is read from its arguments after the hooks: they set block shapes of descriptors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import LanguageValueError
from tilewright.base.foreign_options import FOREIGN
from tilewright.base.grids import Grid
from tilewright.devices.registry import OPTION_NAMES
from tilewright.tuning.config import Config
from tilewright.tuning.hooks import Hooks
from tilewright.tuning.records import Records
from tilewright.tuning.remote import RemoteLaunch, remote_launch
from tilewright.tuning.search import Candidate

_NO_RECORDS = Records(())
_SEEN_IN_CODE = OPTION_NAMES | FOREIGN.keys()


@dataclass(slots=True)
class Asked:
    """What the caller of an autotuner asked for; its configurations add to it.

    Args:
        fn: what the autotuner is around.
        args, kwargs, grid: of the call.
        nargs: positional arguments by name.
        hooks: of the autotuner.
        records: arguments that hooks may change, as they were passed; looked at when a search begins.
    """

    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grid: Grid | None
    nargs: dict[str, Any]
    hooks: Hooks
    records: Records = _NO_RECORDS

    def values(self) -> list[Any]:
        """All arguments of the call."""
        return [*self.args, *self.kwargs.values()]

    def launch(self, config: Config) -> ConfiguredLaunch:
        """The launch with a configuration that is chosen.

        Raises:
            LanguageValueError: a keyword is chosen by the configuration.
        """
        return ConfiguredLaunch.of(self, config)

    def launches(self, configs: Sequence[Config]) -> dict[Config, ConfiguredLaunch]:
        """The launches of a search: each configuration's.

        Raises:
            LanguageValueError: a keyword is chosen by a configuration.
        """
        self.records = Records(self.values())
        shares = bool(self.records) and (self.hooks.are_own or any(config.pre_hook is not None for config in configs))
        return {config: ConfiguredLaunch.of(self, config, shares) for config in configs}


@dataclass(frozen=True, slots=True)
class ConfiguredLaunch:
    """A launch with one configuration.

    Args:
        asked: by the caller.
        config: the configuration.
        kwargs: keywords of the launch, those of the configuration included.
        named: all arguments by name, as hooks, checks and grids of hooks see them; one dictionary for all runs.
        shares: whether hooks of other candidates change its arguments.
    """

    asked: Asked
    config: Config
    kwargs: dict[str, Any]
    named: dict[str, Any]
    shares: bool = False

    @classmethod
    def of(cls, asked: Asked, config: Config, shares: bool = False) -> ConfiguredLaunch:
        """The launch that a caller has asked for, with a configuration.

        Raises:
            LanguageValueError: a keyword is chosen by the configuration.
        """
        chosen = config.all_kwargs()
        clash = asked.kwargs.keys() & chosen.keys()
        if clash:
            raise LanguageValueError(
                f"Conflicting meta-parameters: {', '.join(sorted(clash))}",
                hint="the autotuner chooses them: do not pass them at the launch",
            )
        kwargs = asked.kwargs | chosen
        return cls(asked, config, kwargs, asked.nargs | kwargs, shares)

    # --- in a search -----------------------------------------------------------------------------------

    @property
    def has_own_hooks(self) -> bool:
        """Whether hooks of the user surround it."""
        return self.asked.hooks.are_own or self.config.pre_hook is not None

    def enter(self) -> None:
        """What comes before a run of a search."""
        self._aim()
        self.asked.hooks.before(self.named)

    def leave(self, error: BaseException | None = None) -> None:
        """What comes after it, with what it raised."""
        self.asked.hooks.after(self.named, exception=error)

    def run(self) -> Any:
        """Launch, and nothing around it."""
        return self.asked.fn.run(*self.asked.args, grid=self.asked.grid, **self.kwargs)

    def candidate(self) -> Candidate:
        """What is timed."""
        if self.config.pre_hook is None and not self.asked.hooks and not self.shares:
            return Candidate(self.run)
        return Candidate(self.run, self.enter, self.leave)

    def compile(self) -> Any:
        """Compile what `run` runs, without launching. The user's hooks surround that, too, where they may change what
        is compiled; nothing is zeroed or put back."""
        hooks = self.asked.hooks
        if not self.asked.records.may_change or not (self.has_own_hooks or self.shares):
            return self._compile()
        self._aim()
        if hooks.own_before is not None:
            hooks.own_before(self.named)
        error: Exception | None = None
        try:
            return self._compile()
        except Exception as raised:
            error = raised
            raise
        finally:
            if hooks.own_after is not None:
                hooks.own_after(self.named, exception=error)

    def _aim(self) -> None:
        """Have the arguments be what they are for this configuration."""
        self.asked.records.put_back()
        if self.config.pre_hook is not None:
            self.config.pre_hook(self.named)

    def _compile(self) -> Any:
        return self.asked.fn.warmup(*self.asked.args, grid=self.asked.grid, **self.kwargs)

    def elsewhere(self) -> RemoteLaunch | None:
        """The launch for another process; None where it must be made in this one, as hooks of the user must run."""
        if self.has_own_hooks or self.shares:
            return None
        hooks, asked = self.asked.hooks, self.asked
        return remote_launch(asked.fn, asked.args, self.kwargs, asked.grid, hooks.reset_to_zero, hooks.restore_value)

    def beside_code(self) -> tuple[Any, ...]:
        """What may tell the time of this launch from that of another one which runs the same code."""
        return (self.config.pre_hook, *(item for item in self.config.kwargs.items() if item[0] not in _SEEN_IN_CODE))

    # --- after it --------------------------------------------------------------------------------------

    def reset(self) -> None:
        """What comes between a search and the launch of its choice."""
        self.asked.records.put_back()
        self.asked.hooks.before(self.named, reset_only=True)

    def make(self) -> Any:
        """The launch of the choice."""
        if self.config.pre_hook is not None:
            self.config.pre_hook(self.named)
        return self.run()
