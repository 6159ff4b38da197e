"""`triton.profiler.language`: Proton's scopes within kernels."""

from tilewright.tuning.profile_language import (
    disable_semantic,
    enable_semantic,
    enter_scope,
    exit_scope,
    record,
    scope,
)

__all__ = ["disable_semantic", "enable_semantic", "enter_scope", "exit_scope", "record", "scope"]
