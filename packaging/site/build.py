"""Builds the site of this version below a folder that may hold others: `python packaging/site/build.py FOLDER`.

FOLDER/0.1.0/...      the pages of this version; a warning of Sphinx is an error
FOLDER/versions.json  every version there, for the list on each page
FOLDER/index.html     leads to the newest
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def number(version: str) -> tuple[int, ...]:
    """What versions are ordered by."""
    return tuple(map(int, re.findall(r"\d+", version)))


def write_versions(folder: Path) -> list[str]:
    """Write the list of the versions below a folder, the newest first, and the page that leads to that one."""
    versions = sorted((path.name for path in folder.iterdir() if (path / "index.html").is_file()), key=number)[::-1]
    rows = [{"version": version, "name": version, "url": f"../{version}/"} for version in versions]
    (folder / "versions.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    leads = f'<meta http-equiv="refresh" content="0; url={versions[0]}/index.html">'
    (folder / "index.html").write_text(f"<!doctype html>{leads}<title>Tilewright</title>\n", encoding="utf-8")
    return versions


def main(folder: Path) -> int:
    """Build; the status of Sphinx."""
    from sphinx.cmd.build import main as sphinx

    sys.path.insert(0, str(HERE))
    from conf import DOCS, version

    strict = ["-W", "--keep-going", "-q"]
    status = sphinx([*strict, "-b", "html", "-c", str(HERE), str(DOCS), str(folder / version)])
    if status == 0:
        print(f"{folder / version / 'index.html'}; versions: {', '.join(write_versions(folder))}")
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
