"""`python -m tests.tools.report.pictures`: writes the pictures of docs/pictures/ anew, from reports on the examples.

Needs Chromium, its driver and selenium, as `make test-report`.
"""

from __future__ import annotations

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
for n in (192, 250):
    a, b = torch.randn(n, n).half(), torch.randn(n, n).half()
    for _ in range(5):
        matmul(a, b, tile=(64, 64, 32))
"""
_SHOW = "document.getElementById('{part}').scrollIntoView();"
_DOT = "mark(Number([...document.querySelectorAll('#source .build:not([hidden]) .row')]" + (
    ".find(r => r.querySelector('pre').textContent.includes('tl.dot')).dataset.line));"
)
_CUDA = "document.querySelector('#targets button:nth-child(2)').click();"
_BUTTON = "[...document.querySelectorAll('{query}')].find(b => b.textContent.includes('{text}')).click();"
PICTURES = {  # file -> (part, script, height)
    "report_overview": ("overview", "", 760),
    "report_source": ("source", _CUDA + "setTimeout(() => window.scrollBy(0, 620), 100);", 800),
    "report_stages": ("stages", _CUDA + _DOT, 940),
    "report_passes": ("passes", _CUDA + "const p = document.querySelector('#pass'); p.value = 8; drawPass();", 700),
    "report_layout_lanes": ("layouts", _CUDA + _BUTTON.format(query="[data-role=modes] button", text="lane"), 920),
    "report_layout_shared": ("layouts", _CUDA + _BUTTON.format(query="#layouts .chips button", text="shared"), 920),
    "report_accesses": ("accesses", "", 1000),
    "report_roofline": ("roofline", "", 860),
    "report_trace": ("trace", "document.querySelector('#trace .event.launch').click();", 560),
    "report_dark": ("stages", _CUDA + _DOT + "document.querySelector('#theme').click();", 940),
}  # fmt: skip


def main() -> None:
    """Make the report, and a picture of each part."""
    with tempfile.TemporaryDirectory() as folder:
        program, page = Path(folder) / "matmul.py", Path(folder) / "report.html"
        program.write_text(MATMUL)
        command = [sys.executable, "-m", "tilewright.tools.cli", "report", "-o", str(page), str(program)]
        subprocess.run(command, check=True, cwd=ROOT)
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS, f"--user-data-dir={folder}/chromium"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        for name, (part, script, height) in PICTURES.items():
            driver.set_window_size(1200, height)
            driver.get(page.as_uri())
            time.sleep(1)
            driver.execute_script(script + _SHOW.format(part=part))
            time.sleep(0.6)
            driver.save_screenshot(str(ROOT / "docs/pictures" / f"{name}.png"))
        driver.quit()


if __name__ == "__main__":
    main()
