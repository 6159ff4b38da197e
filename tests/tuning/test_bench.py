"""`tilewright.testing`: times in milliseconds, comparisons, and reports as text, CSV and HTML."""

from __future__ import annotations

import csv
import importlib.util
import time

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.tuning.perf_report import table

testing = tilewright.testing


def test_do_bench_gives_milliseconds():
    ms = testing.do_bench(lambda: time.sleep(0.002), warmup=1, rep=10)
    assert 2 <= ms < 1000


def test_do_bench_runs_the_function_at_least_once_timed():
    calls = []
    times = testing.do_bench(lambda: calls.append(time.sleep(0.002)), warmup=0, rep=0, return_mode="all")
    assert len(times) == 1 and len(calls) == 8  # one to compile, five to estimate, one to warm up


def test_do_bench_drops_gradients():
    class Tensor:
        grad = 1

    tensor = Tensor()
    testing.do_bench(lambda: None, warmup=0, rep=0, grad_to_none=[tensor])
    assert tensor.grad is None


@pytest.mark.parametrize(
    ("quantiles", "mode", "expected"),
    [
        (None, "min", 1.0),
        (None, "max", 6.0),
        (None, "mean", 3.0),
        (None, "median", 2.0),
        (None, "all", [6.0, 1.0, 2.0]),
        ([0.5], "mean", 2.0),
        ([0.0, 1.0], "mean", [1.0, 6.0]),
    ],
)
def test_summaries(quantiles, mode, expected):
    assert testing._summarize_statistics([6.0, 1.0, 2.0], quantiles, mode) == expected


def test_an_unknown_summary_is_refused_before_the_function_runs():
    with pytest.raises(ArgumentError, match="'avg'.*\n.*'median'"):
        testing.do_bench(pytest.fail, return_mode="avg")


def test_assert_close():
    testing.assert_close(np.array([1.0, np.nan]), [1.005, np.nan])
    testing.assert_close(1.0, 1.2, rtol=0.5)
    with pytest.raises(AssertionError, match="the sums"):
        testing.assert_close([1.0], [1.02], err_msg="the sums")
    with pytest.raises(AssertionError):
        testing.assert_close([1.0], [1.005], atol=1e-3)


def test_assert_close_takes_tensors():
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    testing.assert_close(x, x.detach().float().numpy())
    with pytest.raises(AssertionError):
        testing.assert_close(x, x + 1)


@pytest.mark.parametrize(
    "call",
    [
        testing.get_dram_gbps,
        lambda: testing.get_max_simd_tflops("fp32", 1.0),
        lambda: testing.get_max_tensorcore_tflops("fp32", 1.0),
        lambda: testing.nvsmi(["clocks.sm"]),
        testing.set_gpu_clock,
    ],
)
def test_figures_that_a_cpu_does_not_tell_are_refused(call):
    with pytest.raises(UnsupportedError, match="is not known"):
        call()


# --- reports ------------------------------------------------------------------------------------------


def report(**options):
    return testing.Benchmark(
        **{
            "x_names": ["n"],
            "x_vals": [1, 20],
            "line_arg": "p",
            "line_vals": ["a", "b"],
            "line_names": ["A", "B"],
            "plot_name": "speed",
            "args": {"scale": 10},
            **options,
        }
    )


def test_a_report_prints_a_table(capsys):
    mark = testing.perf_report(report())(lambda n, p, scale: (n * scale + (p == "b") / 8, 0.0, 1.0))
    assert mark.run(print_data=True) is None
    assert capsys.readouterr().out == "speed:\n n    A        B\n 1   10   10.125\n20  200  200.125\n"


def test_a_report_is_saved(tmp_path):
    mark = testing.perf_report([report()])(lambda n, p, scale, more: n + more)
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.warns(UserWarning, match="matplotlib is not installed"):
            mark.run(save_path=str(tmp_path / "out"), more=1)
    else:
        mark.run(save_path=str(tmp_path / "out"), more=1)
    with open(tmp_path / "out" / "speed.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["n", "A", "B", "A-min", "B-min", "A-max", "B-max"]
    assert rows[2] == ["20", "21", "21", "", "", "", ""]
    assert "<td>20</td><td>21</td>" in (tmp_path / "out" / "results.html").read_text()


def test_several_x_names_take_one_value_or_one_each(capsys):
    mark = testing.perf_report(report(x_names=["m", "n"], x_vals=[2, (3, 4)], args={}))(lambda m, n, p: m * n)
    mark.run(print_data=True)
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["2", "2", "4", "4"],
        ["3", "4", "12", "12"],
    ]
    with pytest.raises(ArgumentError, match="2 x_names"):
        testing.perf_report(report(x_names=["m", "n"], x_vals=[(1, 2, 3)]))(lambda **_: 0).run()


def test_lines_need_names():
    with pytest.raises(ArgumentError, match="2 line_vals, but 1 line_names"):
        report(line_names=["A"])


def test_data_frames_need_pandas():
    mark = testing.perf_report(report())(lambda n, p, scale: n)
    if importlib.util.find_spec("pandas") is None:
        with pytest.raises(UnsupportedError, match="needs pandas"):
            mark.run(return_df=True)
    else:
        assert mark.run(return_df=True)["A"].tolist() == [1, 20]


def test_tables_line_up():
    assert table(["x", "long"], [[1, 0.333333333], [100, "y"]]) == "  x      long\n  1  0.333333\n100         y"
