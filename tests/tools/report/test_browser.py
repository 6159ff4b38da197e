"""The page in a real Chromium: no error on its console, and each part does what a click or a key asks for.

Runs where Chromium, its driver and selenium are installed: `make test-report`.
"""

from __future__ import annotations

import json
import shutil
import time

import pytest

from tilewright.layouts import text as layout_text
from tilewright.layouts.picture import owners
from tilewright.tools.report import page as pages

webdriver = pytest.importorskip("selenium.webdriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (shutil.which("chromium") and shutil.which("chromedriver")), reason="needs Chromium"),
]
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--window-size=1300,1000",
)  # fmt: skip


class Browser:
    """Chromium with short names for what the tests do."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, file):
        self.driver.get(file.as_uri())
        end = time.monotonic() + 30
        while not self.js("return document.documentElement.dataset.ready === '1'"):
            assert time.monotonic() < end, self.errors()
            time.sleep(0.05)

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def find(self, query):
        return self.driver.find_element("css selector", query)

    def all(self, query):
        return self.driver.find_elements("css selector", query)

    def click(self, query):
        node = self.find(query)
        self.js("arguments[0].scrollIntoView({block: 'center'})", node)
        node.click()

    def press(self, query, *names):
        for name in names:
            self.find(query).send_keys(getattr(webdriver.Keys, name, name))

    def slide(self, query, value):
        move = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        self.js(move, self.find(query), value)

    def errors(self):
        return self.driver.get_log("browser")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def report(browser, run, tmp_path_factory):
    """The page of the run, opened anew, with `product` chosen."""
    browser.open(run[0].save(tmp_path_factory.getbasetemp() / "report.html"))
    number = [node.text for node in browser.all("#overview .link")].index("product")
    browser.click(f"#overview [data-kernel='{number}']")
    yield browser
    assert browser.errors() == []


def test_the_overview_chooses_the_kernel(report):
    names = [node.text for node in report.all("#overview .link")]
    for number, name in enumerate(names):
        report.click(f"#overview [data-kernel='{number}']")
        shown = report.find("#source .build:not([hidden])")
        assert f"def {name}(" in shown.text
    assert report.js("return document.querySelector('#kernel').value") == str(len(names) - 1)


def test_targets_change_source_and_figures(report):
    assert "wgmma" not in report.find("#source .build:not([hidden])").text
    report.click("#targets button:nth-child(2)")
    report.click("#source .build:not([hidden]) [data-role=unfold]")
    assert "wgmma" in report.find("#source .build:not([hidden])").text
    assert "registers" in report.find("#facts").text


def test_a_line_marks_its_lines_in_every_stage(report):
    report.click("#targets button:nth-child(2)")
    line = next(row for row in report.all("#source .build:not([hidden]) .row pre") if "tl.dot" in row.text)
    report.js("arguments[0].scrollIntoView({block: 'center'})", line)
    line.click()
    marked = {pane.get_attribute("data-stage"): pane for pane in report.all(".pane")}
    assert {"source", "ttir", "tgir", "ptx"} <= marked.keys()
    for name, word in (("source", "tl.dot"), ("ttir", "tt.dot"), ("tgir", "warp_group_dot"), ("ptx", "wgmma")):
        texts = report.js("return [...arguments[0].querySelectorAll('.on')].map(n => n.textContent)", marked[name])
        assert any(word in text for text in texts), name
    place = report.js(
        "return [...document.querySelectorAll('.pane .on')].every(n => n.closest('.lines').clientHeight > 0)"
    )
    assert place
    before = report.js("return state.line")
    report.press(".pane[data-stage=source] .lines", "ARROW_DOWN")
    assert report.js("return state.line") > before


def test_stages_are_chosen_and_passes_slide(report):
    shown = len(report.all(".pane"))
    report.click("#stage-names button:nth-child(2)")
    assert len(report.all(".pane")) == shown + 1
    count = int(report.js("return document.querySelector('#pass').max"))
    changed = 0
    for number in range(count + 1):
        report.slide("#pass", number)
        assert report.find("#pass-name").text.startswith(f"{number + 1} of {count + 1}")
        changed += bool(report.all("#diff .add") or report.all("#diff .del"))
    assert changed >= 3


def test_a_tile_says_who_holds_each_element(report):
    report.click("#targets button:nth-child(2)")
    report.click("#layouts .chips button:first-child")
    layout = layout_text.parsed(report.find("#layouts [data-role=bases]").text)
    rows = layout.out_sizes["dim0"]
    held = owners(layout)
    for mode in ("warp", "lane", "register"):
        next(b for b in report.all("#layouts [data-role=modes] button") if b.text == mode).click()
        canvas = report.find("#layouts canvas")
        assert canvas.get_attribute("data-rows") == str(rows)
        assert canvas.get_attribute("data-mode") == mode
    colours = report.js("""
        const c = arguments[0], all = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return new Set(new Uint32Array(all.buffer)).size""", canvas)  # fmt: skip
    assert colours > 2  # gaps between cells are one
    report.press("#layouts canvas", "ARROW_RIGHT", "ARROW_DOWN")
    said = report.find("#layouts [data-role=says]").text
    who = held[1, 1][0]
    assert said.startswith("[1, 1] is held by") and f"lane {who['lane']}" in said and f"warp {who['warp']}" in said
    report.click("#shared-accesses tbody tr:first-child")
    assert "bank" in [b.text for b in report.all("#layouts [data-role=modes] button")]


def test_programs_slide_over_the_tensors(report):
    names = [node.text.split()[0] for node in report.all("#tensor-list h3")]
    assert names == ["a_ptr", "b_ptr", "c_ptr"]
    assert report.find("#program-name").text == "all"
    report.slide("#program", 6)
    assert report.find("#program-name").text == "(1, 2, 0)"
    report.press("#tensor-list div:nth-child(3) canvas", "ARROW_RIGHT")
    assert "reached by none" in report.find("#access-says").text
    report.slide("#program", 0)
    report.click("#access-modes button:nth-child(2)")
    report.press("#tensor-list div:nth-child(1) canvas", "ARROW_RIGHT")
    assert "read 3 times" in report.find("#access-says").text
    report.click(".about:not([hidden]) tr[data-goto]")
    assert report.all("#source .row.on")


def test_a_conversion_is_shown_as_arrows(report):
    report.click("#targets button:nth-child(2)")
    assert not report.find("#conversion").is_displayed()
    rows = [row for row in report.all("#shared-accesses tbody tr") if "convert_layout" in row.text]
    assert rows
    report.js("arguments[0].click()", rows[0])
    assert report.find("#conversion").is_displayed()
    assert len(report.all("#conversion path")) >= 32 and "warp 0" in report.find("#conversion figcaption").text
    warps = report.all("#conversion [data-role=warps] button")
    warps[-1].click()
    assert f"warp {len(warps) - 1}" in report.find("#conversion figcaption").text
    report.js("document.querySelector('#conversion text[tabindex]').focus()")
    assert {path.get_attribute("data-lane") for path in report.all("#conversion path.on")} == {"0"}


def test_software_pipelines_are_those_of_the_kernel(report):
    shown = report.find("#pipelines [data-pipelines]:not([hidden])")
    assert "product" in shown.text and "buffers of" in shown.text
    number = [node.text for node in report.all("#overview .link")].index("scale")
    report.js(f"chooseKernel({number})")
    assert "No loop copies ahead" in report.find("#pipelines [data-pipelines]:not([hidden])").text


def test_points_and_events_say_what_they_are(report):
    report.click("#roofline tr[data-point]")
    assert report.all("#roofline tr.on")
    if report.all("#roofline figure"):
        assert report.all("#roofline figure [id^=roof-].on")
    report.js("document.querySelector('#trace .event.launch').click()")
    said = report.find("#trace-says").text
    assert "takes" in said and "grid" in said
    trace = json.loads(report.js("return data.trace"))
    assert len(trace["traceEvents"]) > len(report.all("#trace .event.launch"))
    report.click("#save-trace")


def test_keys_go_to_the_parts_and_switch_the_theme(report):
    for number, part in enumerate(("overview", "source", "stages", "layouts", "accesses", "roofline", "trace"), 1):
        report.press("body", str(number))
        assert report.js("return location.hash") == f"#{part}"
    before = report.js("return getComputedStyle(document.body).backgroundColor")
    report.press("body", "t")
    assert report.js("return getComputedStyle(document.body).backgroundColor") != before


def test_buttons_and_canvases_are_reached_by_tab_and_have_names(report):
    nameless = report.js("""
        return [...document.querySelectorAll('button, select, input, canvas, [role=radiogroup]')]
          .filter(n => !(n.textContent.trim() || n.getAttribute('aria-label') || n.closest('label')))
          .map(n => n.outerHTML)""")
    assert nameless == []
    report.js("document.querySelector('#theme').focus()")
    reached = set()
    for _ in range(40):
        webdriver.ActionChains(report.driver).send_keys(webdriver.Keys.TAB).perform()
        reached.add(report.js("return document.activeElement.closest('section')?.id || document.activeElement.id"))
    assert {"overview", "kernel"} <= reached


def test_a_layout_that_was_typed_in(browser, tmp_path):
    browser.open(pages.report_of_layout("hardware_swizzled((8, 64), 16, 128)", 16).save(tmp_path / "layout.html"))
    browser.press("canvas", "ARROW_DOWN")
    assert browser.find("[data-role=says]").text == "[1, 0] is held by offset 72, bank 4"
    assert browser.errors() == []
