"""Records of compilations, caches, launches and tuning: who gets them, and what they say."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base import logs
from tilewright.base.errors import KnobError
from tilewright.base.knobs import knobs
from tilewright.launch import logged


@pytest.fixture(autouse=True)
def _as_before(tmp_path):
    with knobs.scope():
        knobs.cache.dir = tmp_path
        yield
    logging.getLogger("tilewright.launch").setLevel(logging.NOTSET)


def doubling():
    """A kernel that nobody has launched."""

    @tilewright.jit
    def double(x, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, 2 * tl.load(x + i, i < n), i < n)

    return double


def said(caplog, name: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == f"tilewright.{name}"]


def test_compilations_say_why_and_how_long(caplog):
    x, double = np.ones(100, np.float32), doubling()
    with caplog.at_level(logging.INFO, "tilewright.compile"):
        double[(2,)](x, 100, BLOCK=64)
        double[(2,)](x, 100, BLOCK=64)
        double[(4,)](x, 100, BLOCK=32)
    first, made, second, _ = said(caplog, "compile")
    assert (
        first.startswith("double: first variant, x: *fp32")
        and second == "double: BLOCK was constant 64, is constant 32"
    )
    assert made.startswith("compiled double for cpu:") and "ttir" in made
    record = next(record for record in caplog.records if hasattr(record, "seconds"))
    assert record.kernel == "double" and 0 < sum(record.stages.values()) <= record.seconds


def test_the_cache_says_where_it_looked(caplog, tmp_path):
    with caplog.at_level(logging.DEBUG, "tilewright.cache"):
        for _ in range(2):
            doubling()[(1,)](np.ones(64, np.float32), 64, BLOCK=64)
        knobs.cache.disabled = True
        doubling()[(1,)](np.ones(64, np.float32), 64, BLOCK=64)
    miss, kept, hit, passed = said(caplog, "cache")
    assert miss.startswith("miss double: ") and miss.endswith(str(tmp_path))
    path = hit.removeprefix("hit double: ")
    assert kept == f"kept double: {path}" and path.startswith(str(tmp_path)) and path.endswith(".tile")
    assert passed.startswith("not asked for double")


def test_launches_are_recorded_where_their_logger_asks(caplog):
    x, double = np.ones(100, np.float32), doubling()
    double[(2,)](x, 100, BLOCK=64)
    assert not knobs.runtime.launch_enter_hook.calls  # nobody is asked at launches
    with caplog.at_level(logging.DEBUG, "tilewright.launch"):
        asked = doubling()
        for _ in range(3):
            asked[(2,)](x, 100, BLOCK=64)
    assert said(caplog, "launch") == ["double[2]: x=float32[100], n=100, BLOCK=64"] * 3


def test_interpreted_launches_are_recorded_too(caplog):
    knobs.runtime.interpret = True
    with caplog.at_level(logging.DEBUG, "tilewright.launch"):
        doubling()[(2,)](np.ones(100, np.float32), 100, BLOCK=64)
    (text,) = said(caplog, "launch")
    assert text.startswith("double[2, 1, 1] interpreted: ") and "n=100" in text


def test_tuning_says_what_it_chose(caplog):
    configs = [tilewright.Config({"BLOCK": block}) for block in (32, 64)]
    tuned = tilewright.autotune(configs, key=["n"], warmup=1, rep=1)(doubling())
    with caplog.at_level(logging.DEBUG, "tilewright.tune"):
        tuned[lambda meta: (tilewright.cdiv(100, meta["BLOCK"]),)](np.ones(100, np.float32), 100)
    choice, *rows = said(caplog, "tune")
    assert choice.startswith("autotuning double for (100,") and len(rows) == 2 and all(" ms" in row for row in rows)


def test_the_knob_shows_records(capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest has some
    knobs.runtime.logs = "compile,+launch"
    assert logged._record in knobs.runtime.launch_enter_hook.calls
    doubling()[(1,)](np.ones(64, np.float32), 64, BLOCK=64)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(maxsplit=1)[1].split(":")[0] for line in lines] == [
        "tilewright.compile", "tilewright.compile", "tilewright.launch"]  # fmt: skip
    knobs.runtime.logs = ""
    assert not knobs.runtime.launch_enter_hook.calls
    doubling()[(1,)](np.ones(64, np.float32), 64, BLOCK=64)
    assert not capsys.readouterr().err


def test_programs_with_handlers_get_records_once(capsys):
    knobs.runtime.logs = "all"
    assert logging.getLogger().handlers
    doubling()[(1,)](np.ones(64, np.float32), 64, BLOCK=64)
    assert not capsys.readouterr().err


def test_what_the_knob_says_of_a_name_that_there_is_not():
    assert logs.levels_of("+cache, hl,-all") == {"tilewright.cache": 10, "tilewright.hl": 20, "tilewright": 40}
    with pytest.raises(KnobError, match="names 'launches'"):
        knobs.runtime.logs = "launches"
