"""Every knob and every compile option is read somewhere: a setting that does nothing is a lie."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from dataclasses import fields

import pytest

from tests.meta.sources import sources
from tilewright.backends.nvidia.options import _ONE_VALUE as CHECKED_ONLY
from tilewright.base.knobs import Knobs, knobs
from tilewright.devices.registry import BACKENDS

DEFINITIONS = ("base/knobs.py", "base/options.py", "backends/cpu/options.py", "backends/nvidia/options.py")
KNOBS = [(group.name, knob.name) for group in fields(Knobs) for knob in fields(getattr(knobs, group.name))]
OPTIONS = sorted({option.name for entry in BACKENDS.values() for option in fields(entry.options)})
# Taken for programs of Triton: what it asks for holds in any case (`CudaOptions` says so).
HOLD_ANYWAY = {"enable_reflect_ftz"}
PROPERTIES = {"extern_libs": "libdevice", "num_warps": "block_warps"}  # read by way of a property of the options


@functools.cache
def reads() -> dict[str, set[str]]:
    """By the name of an attribute, the texts of the objects that it is read from, outside of the definitions."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    wanted = {name for _, name in KNOBS} | set(OPTIONS) | set(PROPERTIES.values())
    for source in sources("tilewright"):
        if not source.name.endswith(DEFINITIONS):
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in wanted:
                    found[node.attr].add(ast.unparse(node.value))
                if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                    found[str(node.args[0].value)].add(ast.unparse(node.func).removesuffix(".get"))
    return found


@pytest.mark.parametrize(("group", "name"), KNOBS, ids=lambda part: part)
def test_every_knob_is_read(group, name):
    homes = (f"knobs.{group}", "knobs", "wanted", "settings")  # the group, or what holds it for a few lines
    assert reads()[name] & set(homes), f"knobs.{group}.{name} is read from {reads()[name] or 'nowhere'}"


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_read(name):
    known = name in CHECKED_ONLY or name in HOLD_ANYWAY
    read = any(text.endswith(("options", "metadata")) for text in reads()[PROPERTIES.get(name, name)])
    assert known != read, f"option {name} is read from {reads()[name] or 'nowhere'}"
