"""Tests of what needs torch: without it nothing is collected here."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["*"]
