"""`@perf_report`: run a function over a range of sizes and several lines, and show the result.

    Benchmark(x_names, x_vals, line_arg, line_vals) -> fn(x=..., line=...) for each -> table, CSV, plot, HTML

A table needs nothing but Python. Plots need matplotlib and data frames need pandas; neither is a dependency.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.base.errors import ArgumentError, UnsupportedError


class Benchmark:
    """What to run and how to draw it.

    Args:
        x_names: arguments along the x axis.
        x_vals: their values: one for all names, or a sequence with one for each.
        line_arg: argument that tells the lines apart.
        line_vals: its values.
        line_names: what the lines are called.
        plot_name: title, and stem of the files.
        args: other arguments, the same for all points.
        xlabel, ylabel: of the axes.
        x_log, y_log: logarithmic axes.
        styles: (colour, line style) of each line, as matplotlib spells them.
    """

    def __init__(
        self,
        x_names: Sequence[str],
        x_vals: Sequence[Any],
        line_arg: str,
        line_vals: Sequence[Any],
        line_names: Sequence[str],
        plot_name: str,
        args: dict[str, Any],
        xlabel: str = "",
        ylabel: str = "",
        x_log: bool = False,
        y_log: bool = False,
        styles: Sequence[tuple[str, str]] | None = None,
    ) -> None:
        if len(line_vals) != len(line_names):
            raise ArgumentError(f"{plot_name}: {len(line_vals)} line_vals, but {len(line_names)} line_names")
        self.x_names, self.x_vals = list(x_names), list(x_vals)
        self.line_arg, self.line_vals, self.line_names = line_arg, list(line_vals), list(line_names)
        self.plot_name, self.args = plot_name, dict(args)
        self.xlabel, self.ylabel, self.x_log, self.y_log = xlabel, ylabel, x_log, y_log
        self.styles = styles


class Mark:
    """A function with the benchmarks to run it on; made by `perf_report`.

    Args:
        fn: gives a number, or (middle, low, high).
        benchmarks: one, or several.
    """

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        self.fn, self.benchmarks = fn, benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Run the benchmarks.

        Args:
            show_plots: open a window with each plot (matplotlib).
            print_data: print a table of each.
            save_path: folder for `<plot_name>.csv`, `<plot_name>.png` (with matplotlib) and `results.html`.
            return_df: return the data as pandas data frames.
            kwargs: more arguments of the function.

        Returns:
            With `return_df` a data frame, or a list of them if the mark has a list of benchmarks.

        Raises:
            UnsupportedError: `return_df` without pandas.
        """
        single = isinstance(self.benchmarks, Benchmark)
        benchmarks = [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else list(self.benchmarks)
        if return_df and importlib.util.find_spec("pandas") is None:
            raise UnsupportedError("return_df=True needs pandas", hint="pip install pandas, or use print_data=True")
        frames = []
        for benchmark in benchmarks:
            header, rows = self._measure(benchmark, kwargs)
            if print_data or (show_plots and not _has_matplotlib()):
                print(f"{benchmark.plot_name}:\n{table(header[: _middle_columns(benchmark)], rows)}")
            if show_plots or save_path:
                _draw(benchmark, header, rows, save_path, show_plots)
            if save_path:
                _write_csv(Path(save_path) / f"{benchmark.plot_name}.csv", header, rows)
            if return_df:
                pandas = importlib.import_module("pandas")
                frames.append(pandas.DataFrame(rows, columns=header).iloc[:, : _middle_columns(benchmark)])
        if save_path:
            _write_html(Path(save_path), benchmarks)
        return (frames[0] if single else frames) if return_df else None

    def _measure(self, benchmark: Benchmark, kwargs: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
        """Header and rows: x values, then the middle, the low and the high value of every line."""
        header = [*benchmark.x_names, *benchmark.line_names]
        header += [f"{name}-{edge}" for edge in ("min", "max") for name in benchmark.line_names]
        rows = []
        for x in benchmark.x_vals:
            values = list(x) if isinstance(x, (list, tuple)) else [x] * len(benchmark.x_names)
            if len(values) != len(benchmark.x_names):
                raise ArgumentError(f"{benchmark.plot_name}: {len(benchmark.x_names)} x_names, but x value {x!r}")
            point = dict(zip(benchmark.x_names, values, strict=True))
            found = [
                self.fn(**point, **{benchmark.line_arg: line}, **benchmark.args, **kwargs)
                for line in benchmark.line_vals
            ]
            triples = [tuple(f) if isinstance(f, (list, tuple)) else (f, None, None) for f in found]
            rows.append([*values, *(triple[place] for place in range(3) for triple in triples)])
        return header, rows


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorate a benchmark function; `run()` of the result runs it.

    Args:
        benchmarks: one, or several.
    """
    return lambda fn: Mark(fn, benchmarks)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Text with aligned columns; only as many cells of a row as there are names in the header."""
    cells = [list(header)] + [[_cell(value) for value in row[: len(header)]] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in cells)


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _middle_columns(benchmark: Benchmark) -> int:
    return len(benchmark.x_names) + len(benchmark.line_names)


def _has_matplotlib() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    import csv  # with html not needed to import the package

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def _write_html(folder: Path, benchmarks: Sequence[Benchmark]) -> None:
    import csv
    import html

    parts = []
    for benchmark in benchmarks:
        name = html.escape(benchmark.plot_name)
        with open(folder / f"{benchmark.plot_name}.csv", newline="", encoding="utf-8") as file:
            rows = "".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>" for row in csv.reader(file))
        picture = f'<img src="{name}.png"/>' if (folder / f"{benchmark.plot_name}.png").is_file() else ""
        parts.append(f"<h2>{name}</h2>{picture}<table>{rows}</table>")
    (folder / "results.html").write_text(f"<html><body>{''.join(parts)}</body></html>\n", encoding="utf-8")


def _draw(
    benchmark: Benchmark, header: Sequence[str], rows: Sequence[Sequence[Any]], save_path: str, show: bool
) -> None:
    """The plot of one benchmark, on screen and as a PNG."""
    if not _has_matplotlib():
        warnings.warn("matplotlib is not installed: no plots, the data is in the table", stacklevel=3)
        return
    pyplot = importlib.import_module("matplotlib.pyplot")
    pyplot.figure()
    axes = pyplot.subplot()
    first, lines = len(benchmark.x_names), len(benchmark.line_names)
    x = [row[0] for row in rows]
    for index, name in enumerate(benchmark.line_names):
        columns = [[row[first + index + place * lines] for row in rows] for place in range(3)]
        style = benchmark.styles[index] if benchmark.styles else (None, None)
        axes.plot(x, columns[0], label=name, color=style[0], ls=style[1])
        if all(value is not None for value in columns[1] + columns[2]):
            axes.fill_between(x, columns[1], columns[2], alpha=0.15, color=style[0])
    axes.legend()
    axes.set_xlabel(benchmark.xlabel or header[0])
    axes.set_ylabel(benchmark.ylabel)
    axes.set_xscale("log" if benchmark.x_log else "linear")
    axes.set_yscale("log" if benchmark.y_log else "linear")
    if save_path:
        Path(save_path).mkdir(parents=True, exist_ok=True)
        pyplot.savefig(Path(save_path) / f"{benchmark.plot_name}.png")
    if show:
        pyplot.show()
    pyplot.close()
