"""One recorded run and its page, shared by the tests of the report; nothing is kept in the user's cache."""

from __future__ import annotations

import pytest

from tests.tools.report.programs import TWO_KERNELS
from tilewright.base.knobs import knobs
from tilewright.tools.report import page
from tilewright.tools.report.builds import shown_kernels

pytest.importorskip("torch")
pytest.importorskip("jinja2")


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """A file with two kernels, three variants and five launches."""
    file = tmp_path_factory.mktemp("report") / "two_kernels.py"
    file.write_text(TWO_KERNELS)
    return file


@pytest.fixture(scope="session")
def run(program, tmp_path_factory):
    """(page, recording) of the program."""
    before, knobs.cache.dir = knobs.cache.dir, tmp_path_factory.mktemp("cache")
    try:
        yield page.report_of_program([str(program)], False, None)
    finally:
        knobs.cache.dir = before


@pytest.fixture(scope="session")
def kernels(run):
    """The kernels of the run as the page shows them, by name."""
    return {kernel.name: kernel for kernel in shown_kernels(run[1], ("cuda:90",))}
