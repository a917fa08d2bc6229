"""Writes constraints.txt: the exact version of everything that the package, its extras, its tests and its build need.

Run it on the oldest supported Python (`make lock`), whose versions the newer ones can install too.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ("pip", "setuptools", "hatchling", "editables")
HEADER = "# Written by `make lock`: what runs, tests and builds this package, in exact versions. Used with `pip install --constraint`.\n"


def main() -> None:
    """Ask pip what it would install, and write that down."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run([*command, "--group", "dev", "--group", "docs", "--group", "browser", *BUILD, ".[all]"], cwd=ROOT, check=True)
        found = json.loads(report.read_text())["install"]
    pins = {re.sub(r"[-_.]+", "-", m["name"]).lower(): m["version"] for m in (item["metadata"] for item in found)}
    pins.pop("crag-middleware")
    (ROOT / "constraints.txt").write_text(HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(pins.items())))
    print(f"constraints.txt: {len(pins)} versions")


if __name__ == "__main__":
    main()
