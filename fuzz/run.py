"""Fuzzes the readers with coverage as the guide, each for a while: `python fuzz/run.py [SECONDS] [READER ...]`. Needs atheris.

Each reader runs in a process of its own, since libFuzzer ends the one it runs in. A text that breaks one, or takes it 20 seconds, is left in a file whose
name is printed; the exit code is then not 0.
"""

import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PER_READER_S = 5
MAX_BYTES = 4096


def fuzz(name: str) -> None:
    """Feeds one reader until its time is over."""
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["crag_middleware", "fuzz"]):
        from fuzz.readers import READERS
    read = READERS[name]

    def one(data: bytes) -> None:
        read(data.decode(errors="surrogateescape"))

    atheris.Setup(sys.argv[:1] + sys.argv[3:], one)
    atheris.Fuzz()


def main(arguments: list[str]) -> int:
    """All readers, or those named, one after the other; how many broke."""
    from fuzz.readers import READERS

    seconds = int(arguments[0]) if arguments else PER_READER_S
    broken = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments[1:] or READERS:
            options = [
                f"-max_total_time={seconds}",
                f"-max_len={MAX_BYTES}",
                "-timeout=20",
                "-rss_limit_mb=4096",
                "-verbosity=0",
                "-close_fd_mask=1",
            ]
            prefix = f"-artifact_prefix={Path(tempfile.gettempdir(), f'fuzz-{name}-')}"
            command = [sys.executable, __file__, "--one", name, *options, prefix]
            done = subprocess.run(
                command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=seconds + 120, check=False
            )
            print(f"{name:22}{'broke' if done.returncode else 'held'}")
            if done.returncode:
                broken += 1
                print(done.stderr[-4000:])
    return broken


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if sys.argv[1:2] == ["--one"]:
        fuzz(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1:]))
