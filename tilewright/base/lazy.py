"""Modules that load when they are first used.

The compiler half of Tilewright (front end, passes, back ends) is needed at the first compile, not by
`import tilewright`. A file that uses such a module names it twice: once under `TYPE_CHECKING`, where type checkers and
the layering test read it, and once through `lazy_module`, or `names_on_first_use` where users look for names.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tilewright.base.errors import MissingPackageError


class LazyModule:
    """Stands for a module until one of its attributes is wanted.

    Args:
        name: dotted name.
        prepare: called with the module when it has been loaded through this object.
    """

    def __init__(self, name: str, prepare: Callable[[Any], None] | None = None) -> None:
        self._name, self._prepare = name, prepare
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._loaded(), attribute)

    def _loaded(self) -> ModuleType:
        if self._module is None:
            module = importlib.import_module(self._name)
            if self._prepare is not None:
                self._prepare(module)
            self._module = module
        return self._module

    def __repr__(self) -> str:
        return f"<lazy module {self._name!r}>"


def lazy_module(name: str, prepare: Callable[[Any], None] | None = None) -> Any:
    """The module `name`, imported on first use; see :class:`LazyModule`."""
    return LazyModule(name, prepare)


def load_all(names: Mapping[str, Any]) -> None:
    """Load the lazy modules among the names of a module, ahead of their first use."""
    for value in list(names.values()):
        if isinstance(value, LazyModule):
            value._loaded()


def rest_on_first_use(names: dict[str, Any], module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a module that takes over the `__all__` of another one at a first use.

    Args:
        names: `globals()` of the module; its `__all__` lists what is there at once.
        module: dotted name of the other.
    """
    own, first = names["__name__"], names.pop("__all__")

    def find(name: str) -> Any:
        if name == "__all__" or not name.startswith("__"):  # which many ask of every module
            rest = importlib.import_module(module)
            public = getattr(rest, "__all__", None)  # none while it is being imported
            if public is not None:
                for other in public:
                    names.setdefault(other, getattr(rest, other))
                names["__all__"] = sorted([*first, *public])
        if name in names:
            return names[name]
        raise AttributeError(f"module {own!r} has no attribute {name!r}", name=name, obj=sys.modules.get(own))

    return find, lambda: sorted({*find("__all__"), *names})


def names_on_first_use(names: dict[str, Any], where: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """A `__getattr__` for a module, which finds a name where it is defined when it is first used, and keeps it.

    Args:
        names: `globals()` of the module.
        where: names by the module that defines them; those of the module itself are its submodules.
    """
    own = names["__name__"]
    places = {name: module for module, defined in where.items() for name in defined}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {own!r} has no attribute {name!r}", name=name, obj=sys.modules.get(own))
        module = places[name]
        if module == own:
            return importlib.import_module(f"{own}.{name}")
        found = names[name] = getattr(importlib.import_module(module), name)
        return found

    return find


class Behind:
    """An import hook: whoever imports a module gets another one with it.

    Args:
        name: the module that is waited for.
        follower: the one that loads behind it.
        unless: asked then; the other is not loaded if it says True.
    """

    def __init__(self, name: str, follower: str, unless: Callable[[], bool]) -> None:
        self._name, self._follower, self._unless = name, follower, unless

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of the module, whose loader goes on with the other; None for all other modules."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def execute(module: ModuleType) -> None:
            run(module)
            self.follow()

        spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec

    def follow(self) -> None:
        """Load the other; one that cannot be loaded is told, and does not stop the module that it was to follow."""
        if self._unless():
            return
        try:
            importlib.import_module(self._follower)
        except Exception as error:
            warnings.warn(f"{self._follower} could not be loaded behind {self._name}: {error}", stacklevel=2)


def load_behind(name: str, follower: str, unless: Callable[[], bool] = lambda: False) -> None:
    """Load the module `follower` behind the module `name`: now if that is loaded, else with it. See `Behind`."""
    behind = Behind(name, follower, unless)
    if name in sys.modules:
        behind.follow()
    else:
        sys.meta_path.insert(0, behind)


@contextmanager
def torch_needed(by: str) -> Iterator[None]:
    """Around imports of torch, and of what imports it.

    Args:
        by: what needs it, as a user calls it.

    Raises:
        MissingPackageError: torch is not installed. That it is broken is told by torch itself.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingPackageError(
            f"{by} needs PyTorch, which is not installed here",
            hint="pip install 'tilewright[torch]'; kernels of tilewright.language run without it",
        ) from None
