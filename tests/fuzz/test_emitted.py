"""The same kernel gives the same code in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_code_does_not_depend_on_the_process(tmp_path: Path) -> None:
    """Neither the seed of hashes nor addresses of objects decide: of products, whose plans hold most sets."""
    command = [sys.executable, "-m", "tests.fuzz.emitted", "--cases", "6", "--seed", "4", "--no-examples"]
    runs = []
    for seed in ("1", "2"):
        filler = "x" * (4096 * int(seed))  # moves what is allocated
        environment = os.environ | {"PYTHONHASHSEED": seed, "FILLER": filler}
        folder = tmp_path / seed
        subprocess.run([*command, "--targets", "amx,cuda90", str(folder)], check=True, env=environment, timeout=300)
        runs.append({path.relative_to(folder): path.read_text() for path in sorted(folder.rglob("*.ll"))})
    assert len(runs[0]) == 12
    assert runs[0] == runs[1]
    assert all("define" in text for text in runs[0].values())
