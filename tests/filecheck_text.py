"""FileCheck on text: what a compiler prints beside the checks that it must satisfy, in order."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts


def filecheck(produced: str, checks: str) -> None:
    """Assert that `produced` satisfies the lines `CHECK: ...`, `CHECK-NEXT: ...`, `CHECK-NOT: ...` of `checks`."""
    options = Options("-")
    parser = Parser(options, io.StringIO(checks), *pattern_for_opts(options))
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(said):
        failed = Matcher(options, FInput("-", produced), parser).run()
    assert not failed, f"{said.getvalue()}\nin\n{produced}"
