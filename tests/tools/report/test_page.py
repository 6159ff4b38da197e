"""The page as a file: one piece, nothing from outside, well formed, small; the commands; `kernel.report`."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import tilewright
import tilewright.language as tl
from tests.tools.report.programs import TWO_KERNELS
from tilewright.base.errors import ArgumentError
from tilewright.tools import cli
from tilewright.tools.report import page as pages

PARTS = ["overview", "source", "stages", "layouts", "accesses", "roofline", "trace"]
_VOID = {"meta", "link", "input", "br", "img"}


class _Page(HTMLParser):
    """Ids, addresses and the nesting of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.addresses, self.open, self.wrong = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.addresses += [given[name] or "" for name in ("src", "href", "xlink:href") if name in given]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()
        elif tag in self.open:
            while self.open.pop() != tag:
                pass
            self.wrong.append(tag)


def _data(text):
    packed = re.search(r'<script id="data"[^>]*>([^<]*)</script>', text).group(1)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def _invoke(*arguments):
    return CliRunner().invoke(cli.main, arguments, catch_exceptions=False)


def test_the_page_is_one_file_that_needs_nothing(run):
    text = run[0].text
    page = _Page(text)
    assert len(text) < 1_000_000
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert not re.search(r"@import|url\(\s*[\"']?(?!#)", text.split("</style>")[0])
    assert not re.search(r"\bfetch\(|XMLHttpRequest|import\(", text)
    assert set(PARTS) <= set(page.ids) and len(page.ids) == len(set(page.ids))
    assert [tag for tag in page.wrong if tag not in ("p", "li")] == []


def test_time_lines_for_two_targets_keep_apart(run):
    """Elements of a plot have ids, and a page has each once."""
    page = _Page(pages.report_of(run[1], "two targets", ("cuda:80", "cuda:90")).text)
    assert len(page.ids) == len(set(page.ids))


def test_the_page_says_what_there_is(run):
    text = run[0].text
    for said in ("scale[BLOCK=256]", "scale[BLOCK=128]", "first variant", "cuda:90", "out_ptr"):
        assert said in text
    data = _data(text)
    assert {kernel["name"] for kernel in data["kernels"]} == {"scale", "product"}
    assert all(len(kernel["builds"]) == 2 for kernel in data["kernels"])


def test_the_script_is_short():
    script = (cli.Path(cli.__file__).parent / "report/templates/script.js").read_text()
    assert len(script.splitlines()) <= 400


def test_the_command_passes_arguments_on(tmp_path, program):
    out, trace = tmp_path / "r.html", tmp_path / "t.json"
    done = _invoke("report", "-t", "none", "-o", str(out), "--trace", str(trace), str(program), "512")
    assert done.exit_code == 0 and str(out) in done.output
    tensor = next(k for k in _data(out.read_text())["kernels"] if k["name"] == "scale")["tensors"][0]
    assert tensor["shape"] == [512]
    assert json.loads(trace.read_text())["traceEvents"]


def test_options_of_the_command_may_stand_behind_the_program(tmp_path):
    file, out = tmp_path / "program.py", tmp_path / "r.html"
    file.write_text(TWO_KERNELS.split("a, b, c")[0] + "\nassert sys.argv[2:] == ['--steps', '3', '-o', 'mine']\n")
    done = _invoke("report", str(file), "300", "-t", "none", "-o", str(out), "--steps", "3", "--", "-o", "mine")
    assert done.exit_code == 0, done.output
    assert [k["name"] for k in _data(out.read_text())["kernels"]] == ["scale"]


def test_the_command_runs_modules(tmp_path, monkeypatch):
    (tmp_path / "some_kernels.py").write_text(TWO_KERNELS.split("a, b, c")[0])
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "r.html"
    assert _invoke("report", "-t", "none", "-o", str(out), "-m", "some_kernels", "300").exit_code == 0
    assert [k["name"] for k in _data(out.read_text())["kernels"]] == ["scale"]


def test_the_command_says_what_is_wrong(tmp_path):
    file = tmp_path / "nothing.py"
    file.write_text("print(1)\n")
    done = _invoke("report", "-o", str(tmp_path / "r.html"), str(file))
    assert done.exit_code == 1 and "no kernel was launched" in done.output
    assert "there is no file" in _invoke("report", str(tmp_path / "none.py")).output


def test_a_target_that_refuses_is_told_on_the_page(tmp_path, program):
    out = tmp_path / "r.html"
    assert _invoke("report", "-t", "cuda:70", "-o", str(out), str(program)).exit_code == 0
    assert "Not compiled for cuda:70" in out.read_text()


def test_layouts_are_shown_in_the_terminal_and_as_a_page(tmp_path):
    done = _invoke("layout", "register=(0,1); lane=(1,0) (2,0) : 4x2")
    assert "(register 2, lane 4)" in done.output and "T3:0 T3:1" in done.output
    out = tmp_path / "layout.html"
    swizzled = "hardware_swizzled((8, 64), element_bits=16, swizzle_bytes=128)"
    assert _invoke("layout", swizzled, "--bits", "16", "-o", str(out)).exit_code == 0
    grid = _data(out.read_text())["layout"]
    assert grid["shared"] and grid["held"]["offset"][64] == 72
    wrong = _invoke("layout", "nonsense")
    assert wrong.exit_code == 1 and "is no layout" in wrong.output


@tilewright.jit
def increment(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1 + tl.load(x_ptr + offsets, offsets < n), offsets < n)


@tilewright.jit
def ahead(x_ptr, num_stages: tl.constexpr):
    for i in tl.range(0, 4, num_stages=num_stages):
        tl.store(x_ptr + i, 1.0)


def test_a_parameter_may_be_called_as_an_option():
    made = ahead.report(torch.zeros(4), num_stages=2, grid=(1,))
    assert "Not compiled" not in made.text and len(_data(made.text)["kernels"][0]["builds"]) == 2


@tilewright.jit
def add_all(x_ptr, BLOCK: tl.constexpr):
    at = x_ptr + tl.arange(0, BLOCK)
    tl.store(at, tl.load(at) + 1)


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_faults_stand_at_their_lines(library):
    x = torch.zeros(64) if library == "torch" else np.zeros(64, np.float32)
    plain = add_all.report(x, BLOCK=64, grid=(1,), targets=(), checks="races").text
    assert "race: " not in plain
    said = add_all.report(x, BLOCK=64, grid=(2,), targets=(), checks="bounds,races").text
    rows = [row for row in said.split('class="row has"') if "race: " in row]
    assert rows and all("tl.load(at)" in re.sub("<[^>]*>", "", row) for row in rows)
    assert "an element of x_ptr" in rows[0]
    assert float(x[0]) == 3 + 3 * 2  # checks run on copies
    with pytest.raises(ArgumentError, match="sums"):
        add_all.report(x, BLOCK=64, grid=(1,), targets=(), checks="sums")


def test_what_addresses_in_memory_point_to_is_left_alone():
    @tilewright.jit
    def count(table):
        place = tl.load(table).to(tl.pointer_type(tl.int32))
        tl.store(place, tl.load(place) + 1)

    x = torch.zeros(1, dtype=torch.int32)
    page = count.report(torch.tensor([x.data_ptr()]), grid=(1,), checks="bounds,races")
    assert x.item() == 3  # the three launches that are timed: none is evaluated, and none made with checks
    assert "addresses that it reads from memory" in page.text


def test_kernels_report_on_themselves():
    made = increment.report(torch.zeros(100), 100, BLOCK=64, grid=(2,), targets=())
    assert "increment[BLOCK=64]" in made.text
    frame = made._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and '"' not in frame.split('srcdoc="')[1].split('" style')[0]
    tuned = tilewright.autotune([tilewright.Config({"BLOCK": 64})], key=["n"])(increment)
    assert "increment[BLOCK=64]" in tuned.report(torch.zeros(100), 100, grid=lambda meta: (2,), targets=()).text
