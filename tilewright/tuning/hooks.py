"""Hooks of an autotuner: what is done to the arguments around each run of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.tuning import arrays
from tilewright.tuning.config import Hook


class Hooks:
    """What an autotuner does around each run of a search.

    Args:
        reset_to_zero, restore_value: names of arguments to zero before, and to put back after each run.
        pre_hook, post_hook: the user's, in place of that; or None.

    Attributes:
        before: `before(args, reset_only=False)`.
        after: `after(args, exception=None)`.
        saved: contents of the arguments to put back, by name, while a run is in progress.
    """

    def __init__(
        self, reset_to_zero: Sequence[str], restore_value: Sequence[str], pre_hook: Hook | None, post_hook: Hook | None
    ) -> None:
        self.reset_to_zero, self.restore_value = list(reset_to_zero), list(restore_value)
        self.saved: dict[str, Any] = {}
        self.own_before, self.own_after = pre_hook, post_hook

    def __bool__(self) -> bool:
        """Whether anything is done."""
        return bool(self.are_own or self.reset_to_zero or self.restore_value)

    @property
    def are_own(self) -> bool:
        """Whether one of them is the user's."""
        return self.own_before is not None or self.own_after is not None

    @property
    def before(self) -> Hook:
        return self.own_before or self._prepare

    @property
    def after(self) -> Hook:
        return self.own_after or self._put_back

    def _prepare(self, args: Mapping[str, Any], reset_only: bool = False) -> None:
        for name in self.reset_to_zero:
            arrays.fill_zero(args.get(name))
        if not reset_only:
            self.saved = {name: arrays.copy(args.get(name)) for name in self.restore_value}

    def _put_back(self, args: Mapping[str, Any], exception: BaseException | None = None) -> None:
        for name, saved in self.saved.items():
            arrays.assign(args.get(name), saved)
        self.saved = {}


class Hooked:
    """The names that an autotuner has for its hooks.

    Attributes:
        hooks: the hooks.
    """

    hooks: Hooks

    @property
    def restore_copies(self) -> dict[str, Any]:
        """What the arguments to put back held, by name, while a run of a search is in progress."""
        return self.hooks.saved

    @property
    def pre_hook(self) -> Hook:
        """What is called before each run of a search; one that is set here is the user's."""
        return self.hooks.before

    @pre_hook.setter
    def pre_hook(self, hook: Hook | None) -> None:
        self.hooks.own_before = hook

    @property
    def post_hook(self) -> Hook:
        """What is called after each run of a search; one that is set here is the user's."""
        return self.hooks.after

    @post_hook.setter
    def post_hook(self, hook: Hook | None) -> None:
        self.hooks.own_after = hook

    @property
    def user_defined_pre_hook(self) -> bool:
        """Whether the user gave a `pre_hook`."""
        return self.hooks.own_before is not None

    @property
    def user_defined_post_hook(self) -> bool:
        """Whether the user gave a `post_hook`."""
        return self.hooks.own_after is not None
