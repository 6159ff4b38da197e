"""The content hash: what changes it, what does not, and globals that change behind a kernel's back."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import types
from typing import Any

import pytest

from tilewright.base.callable import BlockFunction
from tilewright.frontend.hashing import GlobalsChangedError, check_globals, content_hash, used_globals
from tilewright.ops.values import constexpr

_BASE = """
    from tilewright.base.callable import BlockFunction
    from tilewright.ops.values import constexpr
    import tools

    SIZE = constexpr(4)
    UNUSED = constexpr(1)

    class Tuning:
        stages = 3

    @BlockFunction
    def helper(x):
        return x + 1

    @BlockFunction
    def kernel(x, k=2):
        return helper(x) * SIZE + tools.twice(x) * Tuning.stages
"""
_TOOLS = """
    from tilewright.base.callable import BlockFunction

    @BlockFunction
    def twice(x):
        return x * 2
"""


def _load(tmp_path: Any, name: str, text: str, **others: Any) -> Any:
    path = tmp_path / f"{name}.py"
    path.write_text(textwrap.dedent(text))
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules.update(others)
    try:
        exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    finally:
        for other in others:
            del sys.modules[other]
    return module


def _kernel(tmp_path: Any, base: str = _BASE, tools: str = _TOOLS) -> BlockFunction:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    return _load(folder, "user", base, tools=_load(folder, "tools", tools)).kernel  # type: ignore[no-any-return]


def test_the_same_text_gives_the_same_hash(tmp_path: Any) -> None:
    assert content_hash(_kernel(tmp_path)) == content_hash(_kernel(tmp_path))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* SIZE", "- SIZE"),
        ("x + 1", "x + 3"),  # a callee
        ("constexpr(4)", "constexpr(5)"),  # a constant
        ("constexpr(4)", "constexpr(4.0)"),  # its type
        ("k=2", "k=3"),  # a default
        ("stages = 3", "stages = 4"),  # a constant in a class
    ],
)
def test_what_changes_the_hash(tmp_path: Any, old: str, new: str) -> None:
    assert content_hash(_kernel(tmp_path)) != content_hash(_kernel(tmp_path, _BASE.replace(old, new)))


def test_a_callee_of_another_module_counts(tmp_path: Any) -> None:
    changed = _TOOLS.replace("x * 2", "x * 3")
    assert content_hash(_kernel(tmp_path)) != content_hash(_kernel(tmp_path, tools=changed))


def test_noinline_counts(tmp_path: Any) -> None:
    changed = _BASE.replace(
        "@BlockFunction\n    def helper", "@(lambda f: BlockFunction(f, noinline=True))\n    def helper"
    )
    assert content_hash(_kernel(tmp_path)) != content_hash(_kernel(tmp_path, changed))


def test_what_the_kernel_does_not_use_does_not_count(tmp_path: Any) -> None:
    changed = _BASE.replace("UNUSED = constexpr(1)", "UNUSED = constexpr(2)")
    assert content_hash(_kernel(tmp_path)) == content_hash(_kernel(tmp_path, changed))


def test_the_hash_is_the_same_in_another_process(tmp_path: Any) -> None:
    (tmp_path / "tools.py").write_text(textwrap.dedent(_TOOLS))
    (tmp_path / "user.py").write_text(textwrap.dedent(_BASE))
    script = (
        "from user import kernel; from tilewright.frontend.hashing import content_hash; print(content_hash(kernel))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {script}"],
            check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1 and len(found.pop().strip()) == 64


def test_closures_count() -> None:
    def make(size: int) -> BlockFunction:
        count = constexpr(size)

        def kernel(x):
            return x * count

        return BlockFunction(kernel)

    assert content_hash(make(1)) != content_hash(make(2))
    assert content_hash(make(1)) == content_hash(make(1))


def test_recursion_ends_and_covers_both_functions(tmp_path: Any) -> None:
    text = """
        from tilewright.base.callable import BlockFunction

        @BlockFunction
        def odd(n):
            return even(n - 1)

        @BlockFunction
        def even(n):
            return odd(n - 1)
    """

    def load(name: str, text: str) -> Any:
        folder = tmp_path / name
        folder.mkdir()
        return _load(folder, "user", text)

    first = load("first", text)
    second = load("second", text.replace("even(n - 1)", "even(n - 2)"))
    content_hash(first.odd), content_hash(second.odd)
    assert content_hash(first.even) != content_hash(second.even)


def test_an_object_that_leads_back_to_the_kernel(tmp_path: Any) -> None:
    """Its class calls the kernel; what it holds counts, and a change of it is found."""
    text = """
        from tilewright.base.callable import BlockFunction

        class Launcher:
            def __init__(self, scale):
                self.scale, self.kept = scale, {3, (4, 5)}

            def run(self, x):
                return kernel(x)

        launcher = Launcher(2)

        @BlockFunction
        def inner(x):
            return x * launcher.scale

        @BlockFunction
        def kernel(x):
            return inner(x) + launcher.scale
    """
    kernel, same = (_kernel(tmp_path, text) for _ in range(2))
    other = _kernel(tmp_path, text.replace("Launcher(2)", "Launcher(3)"))
    assert content_hash(kernel) == content_hash(same) != content_hash(other)
    check_globals(kernel)
    kernel.fn.__globals__["launcher"].scale = 3
    with pytest.raises(GlobalsChangedError, match="launcher"):
        check_globals(kernel)


def test_a_changed_global_is_found(tmp_path: Any) -> None:
    kernel = _kernel(tmp_path)
    content_hash(kernel)
    used = {entry.name: entry.value for entry in used_globals(kernel)}
    assert used.keys() == {"SIZE", "stages", "helper", "twice"} and used["SIZE"] == constexpr(4) and used["stages"] == 3
    check_globals(kernel)
    kernel.fn.__globals__["SIZE"] = constexpr(4)  # equal: fine
    check_globals(kernel)
    kernel.fn.__globals__["SIZE"] = constexpr(8)
    with pytest.raises(
        GlobalsChangedError, match=r"Global variable SIZE has changed .* from constexpr\[4\] to constexpr\[8\]"
    ):
        check_globals(kernel)
    assert issubclass(GlobalsChangedError, RuntimeError)


def test_a_callee_hashed_with_another_value_is_found(tmp_path: Any) -> None:
    text = """
        from tilewright.base.callable import BlockFunction
        from tilewright.ops.values import constexpr

        N = constexpr(1)

        @BlockFunction
        def inner(x):
            return x * N

        @BlockFunction
        def outer(x):
            return inner(x) + N
    """
    module = _load(tmp_path, "user", text)
    content_hash(module.inner)
    module.N = constexpr(2)
    with pytest.raises(GlobalsChangedError, match="Global variable N has value"):
        content_hash(module.outer)


def test_variables_of_the_function_are_not_globals(tmp_path: Any) -> None:
    text = """
        from tilewright.base.callable import BlockFunction

        x, n, i, part, size, flag = 1, 2, 3, 4, 5, 6

        @BlockFunction
        def kernel(p):
            x = p + 1
            for i in range(4):
                x += i
            if p > 0:
                n = 1
                flag = 1
            else:
                n = 2
            values = [part for part in (1, 2)]
            return x + n + values[0] + size + flag
    """
    module = _load(tmp_path, "user", text)
    content_hash(module.kernel)
    assert {entry.name for entry in used_globals(module.kernel)} == {"size", "flag"}


@pytest.mark.parametrize(
    "text",
    ["x = x + 1", "x += 1", "y = (lambda k: k + x)(1)", "y = [k for k in (x, 1)]", "for k in (1,):\n    x = 1\ny = x"],
)
def test_reads_before_an_assignment_count(tmp_path: Any, text: str) -> None:
    body = textwrap.indent(text, "    ")
    source = f"from tilewright.base.callable import BlockFunction\nx = 1\n@BlockFunction\ndef kernel(p):\n{body}\n"
    module = _load(tmp_path, "user", source)
    assert [entry.name for entry in used_globals(module.kernel)] == ["x"]


def test_the_methods_of_a_record_count(tmp_path: Any) -> None:
    text = """
        import tilewright.language as tl
        from tilewright.base.callable import BlockFunction

        @tl.aggregate
        class State:
            total: tl.tensor

            def push(self, x):
                return State(self.total + x)

        @BlockFunction
        def kernel(p):
            return State(p).push(1)
    """
    before = content_hash(_load(tmp_path, "user", text).kernel)
    assert content_hash(_load(tmp_path, "user", text).kernel) == before
    assert content_hash(_load(tmp_path, "user", text.replace("self.total + x", "self.total - x")).kernel) != before
    assert content_hash(_load(tmp_path, "user", text.replace("total: tl.tensor", "total: tl.tuple")).kernel) != before
