"""One process of a fuzz run: reads a request per line, runs it, answers with a line. It may die; its parent notices."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

from tests.fuzz.check import check


def main() -> None:
    """Answer requests `{"path": ..., "interpreter": ..., "gpu": ...}` until the input ends."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels print must not mix with the answers
    for line in sys.stdin:
        request = json.loads(line)
        outcome = check(Path(request["path"]), interpreter=request["interpreter"], gpu=request["gpu"])
        answers.write(json.dumps([outcome.stage, outcome.detail, outcome.kind]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
