"""`triton.profiler`: Proton's functions, as Tilewright has them."""

from tilewright.tuning.profiler import (
    DEFAULT_PROFILE_NAME,
    activate,
    cpu_timed_scope,
    deactivate,
    enter_scope,
    enter_state,
    exit_scope,
    exit_state,
    finalize,
    metadata_state,
    profile,
    scope,
    start,
    state,
)

from . import language, viewer

__all__ = [
    "DEFAULT_PROFILE_NAME", "activate", "cpu_timed_scope", "deactivate", "enter_scope", "enter_state", "exit_scope",
    "exit_state", "finalize", "language", "metadata_state", "profile", "scope", "start", "state", "viewer",
]  # fmt: skip
