"""`python -m tests.tools.report.pictures`: writes the pictures of docs/pictures/ anew, from reports on a product and on
the program of docs/first_steps.md (`matmul` or `first_steps` behind it: those alone).

Needs Chromium, its driver and selenium, as `make test-report`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver

ROOT = Path(__file__).resolve().parents[3]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
MATMUL = """
import torch
from examples.matmul import matmul
torch.manual_seed(0)
for n, launches in ((250, 2), (512, 20)):
    a, b = torch.randn(n, n).half(), torch.randn(n, n).half()
    for _ in range(launches):
        matmul(a, b, tile=(64, 64, 32))
"""
_SHOW = "document.getElementById('{part}').scrollIntoView();"
_DOT = "mark(Number([...document.querySelectorAll('#source .build:not([hidden]) .row')]" + (
    ".find(r => r.querySelector('pre').textContent.includes('tl.dot')).dataset.line));"
)
_CUDA = "document.querySelector('#targets button:nth-child(2)').click();"
_BUTTON = "[...document.querySelectorAll('{query}')].find(b => b.textContent.includes('{text}')).click();"
Shots = dict[str, tuple[str, str, int]]  # file -> (part, script, height)
PICTURES: Shots = {
    "report_overview": ("overview", "", 760),
    "report_source": ("source", _CUDA + "setTimeout(() => window.scrollBy(0, 620), 100);", 800),
    "report_stages": ("stages", _CUDA + _DOT, 940),
    "report_passes": ("passes", _CUDA + "const p = document.querySelector('#pass'); p.value = 8; drawPass();", 700),
    "report_layout_lanes": ("layouts", _CUDA + _BUTTON.format(query="[data-role=modes] button", text="lane"), 920),
    "report_layout_shared": ("layouts", _CUDA + _BUTTON.format(query="#layouts .chips button", text="shared"), 920),
    "report_accesses": ("accesses", "", 1000),
    "report_roofline": ("roofline", "", 860),
    "report_pipelines": ("pipelines", "", 620),
    "report_conversion": (
        "conversion",
        _CUDA + "[...document.querySelectorAll('#shared-accesses tbody tr')].find("
        "r => r.textContent.includes('convert_layout')).click();",
        700,
    ),
    "report_trace": ("trace", "document.querySelector('#trace .event.launch').click();", 560),
    "report_dark": ("stages", _CUDA + _DOT + "document.querySelector('#theme').click();", 940),
}  # fmt: skip


_KERNEL = "for (const s of [document.querySelector('#kernel')]) {{ s.selectedIndex = [...s.options].findIndex(" + (
    "o => o.textContent.includes('{name}')); s.dispatchEvent(new Event('change')); }}"
)
_LAST = "const p = document.querySelector('#program'); p.value = p.max; p.dispatchEvent(new Event('input'));"
FIRST_STEPS: Shots = {
    "first_steps_accesses": (
        "accesses",
        _KERNEL.format(name="brighten") + f"setTimeout(() => {{ {_LAST} }}, 200);",
        640,
    ),
    "first_steps_source": ("source", _KERNEL.format(name="histogram"), 620),
}


def main() -> None:
    """Make the reports, and a picture of each part."""
    page = (ROOT / "docs" / "first_steps.md").read_text(encoding="utf-8")
    first_steps = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    only = sys.argv[1:]
    for name, program, shots in (("matmul", MATMUL, PICTURES), ("first_steps", first_steps, FIRST_STEPS)):
        if not only or name in only:
            _shoot(name, program, shots)


def _shoot(name: str, program: str, shots: Shots) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file, page = Path(folder) / f"{name}.py", Path(folder) / "report.html"
        file.write_text(program)
        command = [sys.executable, "-m", "tilewright.tools.cli", "report", "-o", str(page), str(file)]
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": f"{folder}/cache"}  # places are those of this file
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS, f"--user-data-dir={folder}/chromium"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        for picture, (part, script, height) in shots.items():
            driver.set_window_size(1200, height)
            driver.get(page.as_uri())
            time.sleep(1)
            driver.execute_script(script + _SHOW.format(part=part))
            time.sleep(0.6)
            driver.save_screenshot(str(ROOT / "docs/pictures" / f"{picture}.png"))
        driver.quit()


if __name__ == "__main__":
    main()
