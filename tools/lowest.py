"""Makes an environment with the lowest versions that pyproject.toml allows, or the newest: `python tools/lowest.py FOLDER [newest]`. Needs uv.

The package itself is installed in place; tests then run with `FOLDER/bin/python -m pytest`. What tests need besides comes in the newest version that fits.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("local", "files", "evals")


def main(folder: str, which: str = "lowest") -> None:
    """Resolves, makes the environment, installs."""
    resolution = {"lowest": "lowest-direct", "newest": "highest"}[which]
    uv = [sys.executable, "-m", "uv"]
    python = str(Path(folder, "bin", "python"))
    with tempfile.TemporaryDirectory() as scratch:
        versions = str(Path(scratch, "versions.txt"))
        extras = [word for extra in EXTRAS for word in ("--extra", extra)]
        chosen = ["--resolution", resolution, "--python-version", f"{sys.version_info.major}.{sys.version_info.minor}"]
        compiled = [*uv, "pip", "compile", "--quiet", *chosen, *extras, "--group", "dev", "pyproject.toml", "--output-file", versions]
        subprocess.run(compiled, cwd=ROOT, check=True)
        subprocess.run([*uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder], check=True)
        subprocess.run([*uv, "pip", "install", "--quiet", "--python", python, "--requirement", versions], cwd=ROOT, check=True)
        subprocess.run([*uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "--editable", str(ROOT)], cwd=ROOT, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
