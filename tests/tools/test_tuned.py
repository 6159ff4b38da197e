"""`tilewright tuned`: what searches have left is listed, compared, sent to others and dropped."""

from __future__ import annotations

import json
import xml.etree.ElementTree

import pytest

pytest.importorskip("torch")

from click.testing import CliRunner

from tilewright.base.knobs import knobs
from tilewright.hl.config import Config
from tilewright.hl.tune import cache as best_configs
from tilewright.hl.tune.journal import SUFFIX, Journal
from tilewright.hl.tune.outcomes import Compiled, Failed, Timed
from tilewright.tools.cli import main


def run(*words):
    done = CliRunner().invoke(main, ["tuned", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


def searched(folder, name, kernel, times, how="complete"):
    """Write the journal of a search that has measured times of block sizes; its id."""
    head = {"kernel": kernel, "key": "((torch.float32, torch.Size([64, 32])),)", "structure": "s", "source": "t"}
    journal = Journal(folder / "hl" / f"{name * 64}{SUFFIX}", head)
    for at, (block, ms) in enumerate(times.items()):
        config = Config(block_sizes=[block])
        if ms is None:
            journal.failed(config, Failed("crash", "signal 11"), at=at)
        else:
            journal.timed(config, ms, Timed((ms,), (ms,)), Compiled(0.5), at=at)
    best = min((block for block in times if times[block]), key=lambda block: times[block])
    journal.ended(how, Config(block_sizes=[best]), ms=times[best], default_ms=times[1], worth={"block_sizes": 2.0})
    return journal.id


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(knobs.cache, "dir", tmp_path / "mine")
    return tmp_path / "mine"


def test_searches_are_listed_shown_and_compared(folder, tmp_path):
    assert "kernel" in run("list")
    one = searched(folder, "a", "softmax", {1: 4.0, 2: 2.0, 4: None})
    other = searched(folder, "b", "softmax", {1: 2.0, 2: 1.0, 8: 0.5})
    searched(folder, "c", "matmul", {1: 4.0}, "interrupted")
    listed = run("list", "soft")
    assert one in listed and other in listed and "matmul" not in listed and "0.50" in listed and "[64, 32]" in listed
    assert "interrupted" in run("list")
    shown = run("show", one, "--plot", tmp_path / "search.svg")
    assert "@hl.kernel(config=hl.Config(block_sizes=[2]))" in shown
    assert "2.000 times as long" in shown and "crash: 1, first: signal 11" in shown
    picture = xml.etree.ElementTree.parse(tmp_path / "search.svg").getroot()
    assert len(picture.findall("{*}circle")) == 2 and "softmax" in "".join(picture.itertext())
    compared = run("compare", one, other)
    assert "2 configurations are in both; the second takes 0.500" in compared and "block_sizes" in compared
    missing = CliRunner().invoke(main, ["tuned", "show", "zzz"])
    assert missing.exit_code == 1 and "tuned list" in missing.output


def test_a_colleague_gets_them(folder, tmp_path, monkeypatch):
    one = searched(folder, "a", "softmax", {1: 4.0, 2: 2.0})
    searched(folder, "b", "matmul", {1: 4.0, 2: 2.0})
    assert "1 searches" in run("export", tmp_path / "sent.jsonl", "--only", "soft")
    monkeypatch.setattr(knobs.cache, "dir", tmp_path / "theirs")
    assert "took 1 searches" in run("import", tmp_path / "sent.jsonl")
    assert "took 0 searches" in run("import", tmp_path / "sent.jsonl")
    assert one in run("list")
    assert best_configs.read(tmp_path / "theirs" / "hl" / f"{'a' * 64}.best_config") == Config(block_sizes=[2])


def test_a_file_that_names_other_files_is_not_followed(folder, tmp_path):
    sent = tmp_path / "sent.jsonl"
    sent.write_text(json.dumps({"search": "1", "kernel": "k", "file": "../../evil"}) + "\n")
    assert "took 0" in run("import", sent) and not list(tmp_path.glob("**/*evil*"))


def test_what_is_old_is_dropped(folder):
    searched(folder, "a", "softmax", {1: 4.0, 2: 2.0})
    last = searched(folder, "a", "softmax", {1: 4.0, 2: 3.0})
    assert "dropped 1 searches" in run("prune") and last in run("list")
    assert "dropped 0 searches" in run("prune", "--days", "1")
    assert "dropped 1 searches" in run("prune", "--days", "0") and last not in run("list")
