"""Every example of examples/hl runs as it stands and passes its own checks; random configurations give the same.

`python -m tests.hl.example_calls` draws more of them.
"""

from __future__ import annotations

import pytest

from tests.hl.example_calls import FILES, calls_of, check_configs


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_passes_its_checks_and_its_configurations_give_one_result(path, capsys):
    calls = calls_of(path)
    assert "max error" in capsys.readouterr().out and calls
    check_configs(calls, 2)
