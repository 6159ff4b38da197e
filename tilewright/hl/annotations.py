"""`hl.constexpr` as type checkers see it: the stub beside this file says that it stands for any value."""

from __future__ import annotations

from tilewright.hl.constexpr import ConstExpr as constexpr

__all__ = ["constexpr"]
