"""A program: which of the names on stdin Tilewright has under the name `triton`, as a list of states in JSON.

It runs in a process of its own, since it takes the name `triton` for that process.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any

import tilewright

tilewright.as_triton()
import triton  # noqa: E402 -- there is none before
import triton.language as tl  # noqa: E402

from tilewright.base.refusal import OneValue, Refusal  # noqa: E402
from tilewright.devices.registry import USUAL  # noqa: E402


@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), n)


def roots() -> dict[str, Any]:
    """An object for every class whose members are named."""
    compiled = kernel.warmup(tilewright.MockTensor(tl.float32), 5, BLOCK=16, grid=(1,))
    config = triton.Config({"BLOCK": 16})
    tuner = triton.autotune([config], ["n"])(kernel)
    tuner.best_config = config
    return {
        "JITFunction": kernel,
        "KernelParam": kernel.params[0],
        "CompiledKernel": compiled,
        "Config": config,
        "Autotuner": tuner,
    }


def state(name: str, objects: dict[str, Any]) -> tuple[str, str]:
    """ "yes", "refused" (a typed error, or an object that raises one when it is used) or "missing" (Python's own); and
    the reason that such an object gives, or a setting that has one value."""
    first, *rest = name.split(".")
    try:
        if first == "launch":
            return launched(rest[0]), ""
        found, path = (objects[first], first) if first in objects and rest else (triton, "triton")
        for part in rest if found is not triton else name.split("."):
            path = f"{path}.{part}"
            one = inspect.getattr_static(type(found), part, None)
            found = member(found, part, path)
            if type(found) is Refusal:
                return "refused", found.why
            if isinstance(one, OneValue):
                return "yes", str(one)
        if "NoReturn" in str(getattr(found, "__annotations__", {}).get("return")):
            return "refused", ""
    except tilewright.TilewrightError:
        return "refused", ""
    except (AttributeError, ImportError):
        return "missing", ""
    return "yes", ""


def member(found: Any, part: str, path: str) -> Any:
    """What `found.part` is, imported if need be."""
    try:
        return getattr(found, part)
    except tilewright.TilewrightError:
        raise
    except AttributeError:
        importlib.import_module(path)
        return getattr(found, part)


def launched(keyword: str) -> str:
    """State of an option of launches: accepted with the value that it usually has, or refused by name."""
    try:
        kernel.request(
            tilewright.MockTensor(tl.float32), 5, BLOCK=16, target="cuda:90", **{keyword: USUAL.get(keyword)}
        )
    except tilewright.TilewrightError:
        return "refused"
    return "yes"


if __name__ == "__main__":
    known = roots()
    json.dump([state(name, known) for name in sys.stdin.read().split()], sys.stdout)
