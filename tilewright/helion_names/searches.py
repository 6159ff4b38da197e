"""Helion's searches by name: each is a strategy of `tilewright.hl`'s one driver.

As in Helion they are made of a binding and arguments, by a program that calls `autotune()` or by the setting
`autotuner_fn`; options of Helion's own algorithms are accepted and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.runtime.bound import BoundKernel
from tilewright.hl.tune import driver, strategies


class Search:
    """A search over the configurations of a binding.

    Args:
        kernel: the binding.
        args: arguments to time it with.
        options: of Helion's algorithm, without meaning here.
    """

    _name: ClassVar[str]

    def __init__(self, kernel: BoundKernel, args: Sequence[Any], **options: Any) -> None:
        self.kernel, self.args = kernel, tuple(args)
        self._strategy = self._made()

    def _made(self) -> strategies.Strategy:
        return strategies.named(self._name)[0]

    def propose(self, space: strategies.Space, times: strategies.Times, count: int) -> Sequence[Config]:
        """Candidates to try next; see `tilewright.hl.tune.strategies.Strategy`."""
        return self._strategy.propose(space, times, count)

    def autotune(self, *, skip_cache: bool = False) -> Config:
        """Search, and give the fastest; `skip_cache` changes nothing: what is known is not asked."""
        search = driver.Driver(self.kernel, self.args)
        found = search.search(self.kernel.settings.autotune_effort, self._strategy)
        search.report(found)
        return found


class RandomSearch(Search):
    """Random configurations."""

    _name = "random"


class PatternSearch(Search):
    """Neighbours of the best."""

    _name = "pattern"


class DifferentialEvolutionSearch(Search):
    """Differences of two good configurations added to a third."""

    _name = "differential_evolution"


class LFBOTreeSearch(Search):
    """What trees that learn the times expect to be fast, a lower confidence bound; neighbours of the best where
    scikit-learn is not installed."""

    _name = "surrogate"


class LFBOPatternSearch(LFBOTreeSearch):
    """The same."""


class DESurrogateHybrid(LFBOTreeSearch):
    """The same."""


class FiniteSearch(Search, strategies.Finite):
    """Given configurations, and no others.

    Args:
        kernel: the binding.
        args: arguments to time it with.
        configs: at least two; None for those of the kernel.
        options: without meaning here.

    Raises:
        InvalidAPIUsage: there are fewer.
    """

    def __init__(
        self, kernel: BoundKernel, args: Sequence[Any],
        configs: Iterable[Config | Mapping[str, Any]] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        strategies.Finite.__init__(
            self, kernel.configs if configs is None else map(kernel.config_spec.normalize, configs)
        )
        if len(self.configs) < 2:
            raise exc.InvalidAPIUsage(
                f"FiniteSearch chooses among {len(self.configs)} configurations", hint="give two, or set_config"
            )
        Search.__init__(self, kernel, args, **options)

    def _made(self) -> strategies.Strategy:
        return strategies.Finite(self.configs)


_ALL: tuple[Callable[..., Search], ...] = (
    DESurrogateHybrid, DifferentialEvolutionSearch, FiniteSearch, LFBOPatternSearch, LFBOTreeSearch, PatternSearch,
    RandomSearch,
)  # fmt: skip
search_algorithms: dict[str, Callable[..., Search]] = {made.__name__: made for made in _ALL}
