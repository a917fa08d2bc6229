"""Many turns of many tenants at once on one middleware and one collection, with faults: does anything mix, get lost, or pile up?

    python benchmarks/soak.py [--turns 10000] [--minutes 20] [--embedded] [--trace] [--json]

Half of 200 workers are threads, half are tasks on four event loops; the turns of 20 tenants are mixed. Of the calls of retriever, evaluator, rewriter, claim
checker and web 5 % raise, hang beyond their deadline or return garbage. The knowledge lies in a Milvus Lite server in a process of its own, or, with
--embedded, in this one. Turns run in five slices. After each the workers end, calls that were left behind end, and memory, file descriptors and threads are
counted.

The exit code is 1 if a marker of one tenant reached another one's model call, answer, citation, receipt or event, if a log line holds private text, if a turn
ended without an answer to its own question, if memory grew by 5 % or more after the first slice, or if descriptors or threads grew.

Unless MALLOC_ARENA_MAX is set it is set to 2: memory that glibc keeps free in the arenas of 200 threads is no leak, but looks like one.
"""

import argparse
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from soak_turns import Load, Soak, percentiles

GROWTH = 0.05
"""Memory may grow by less than this share after the first slice."""

JUDGED = 2000
"""Memory is judged from so many turns on: fewer are still warming up."""

SLACK = 10
"""Descriptors, or threads, that may be more after the last slice than after the first: pools that were not full yet."""


@dataclass(frozen=True)
class Counted:
    """What the process holds while nothing is going on, after so many turns: resident megabytes, Python's memory blocks in use, descriptors, threads."""

    turns: int
    memory_mb: float
    blocks: int
    descriptors: int
    threads: int


@dataclass
class Report:
    """What came of it.

    Attributes:
        turns: Turns that ended.
        seconds: How long the workers worked.
        cpu_ms_per_turn: CPU time of this process for one turn, models, agent and checks included.
        own_ms: Percentiles of a turn's time in which none of its models and ports was at work, under this load.
        own_ms_alone: The same of turns one after the other, without faults.
        bare_ms_alone: The same of the agent without the middleware.
        turn_s: Percentiles of a turn's whole time.
        counted: What the process held after each slice.
        growth: How much more memory it held after the last than after the first, as a share.
        statuses: How many turns had which status and verdict.
        degraded: How often which step was done without, and why.
        logged: How many lines which logger wrote.
        failures: What is promised and was not held; empty if all was.
        told: The first findings.
    """

    turns: int = 0
    seconds: float = 0.0
    cpu_ms_per_turn: float = 0.0
    own_ms: dict[str, float] = field(default_factory=dict)
    own_ms_alone: dict[str, float] = field(default_factory=dict)
    bare_ms_alone: dict[str, float] = field(default_factory=dict)
    turn_s: dict[str, float] = field(default_factory=dict)
    counted: list[Counted] = field(default_factory=list)
    growth: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)
    degraded: dict[str, int] = field(default_factory=dict)
    logged: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


def counted(turns: int) -> Counted:
    """What this process holds now, without what is garbage."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return Counted(
        turns,
        round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
        sys.getallocatedblocks(),
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
    )


def soak(uri: str, load: Load, *, alone: int = 100, trace: bool = False, say: Callable[[str], None] = lambda line: None) -> Report:
    """Runs the load on the collection at an address and reports.

    Args:
        uri: Where Milvus is.
        load: The load.
        alone: Turns that are measured one by one before.
        trace: Prints, at the end, where memory grew after the first slice.
        say: Told how far it is.
    """
    soaking, report = Soak(uri, load), Report()
    begun, until = time.monotonic(), time.monotonic() + 60 * load.minutes
    with soaking.findings.listening():
        report.own_ms_alone, report.bare_ms_alone = soaking.alone(alone)
        worked, cpu, before = 0.0, time.process_time(), None
        for part in range(load.slices):
            if time.monotonic() >= until:
                break
            first, last = (load.turns * n // load.slices for n in (part, part + 1))
            started = time.monotonic()
            soaking.run(iter(range(first, last)), until)
            worked += time.monotonic() - started
            soaking.settle()
            report.counted.append(counted(len(soaking.walls)))
            say(f"{report.counted[-1]} after {time.monotonic() - begun:.0f} s")
            if trace and part == 0:
                tracemalloc.start(12)
                before = tracemalloc.take_snapshot()
    if before is not None:
        for line in tracemalloc.take_snapshot().compare_to(before, "traceback")[:5]:
            print(line, *line.traceback.format(), sep="\n", file=sys.stderr)
        tracemalloc.stop()
    report.turns, report.seconds = len(soaking.walls), round(worked, 1)
    report.cpu_ms_per_turn = round(1000 * (time.process_time() - cpu) / max(1, report.turns), 1)
    report.own_ms, report.turn_s = percentiles(soaking.overheads), percentiles(soaking.walls)
    report.statuses, report.degraded, report.logged = map(dict, (soaking.statuses, soaking.degraded, soaking.findings.logged))
    report.told = soaking.findings.told
    report.failures = [f"{count} x {kind}" for kind, count in soaking.findings.counts.items()] + grown(report)
    return report


def grown(report: Report) -> list[str]:
    """What piled up. Sets the report's `growth`."""
    first, last = report.counted[0], report.counted[-1]
    report.growth = round(last.memory_mb / first.memory_mb - 1, 4)
    failures = []
    if last.turns >= JUDGED:
        failures += [f"memory grew by {report.growth:.1%}"] if report.growth >= GROWTH else []
        failures += [f"memory blocks grew from {first.blocks} to {last.blocks}"] if last.blocks >= first.blocks * (1 + GROWTH) else []
    for what, before, after in (("descriptors", first.descriptors, last.descriptors), ("threads", first.threads, last.threads)):
        failures += [f"{what} grew from {before} to {after}"] if after > before + SLACK else []
    return failures


@contextmanager
def lite_server(folder: str) -> Iterator[str]:
    """The address of a Milvus Lite server in another process, which ends with this block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-u", "-m", "milvus_lite", "server", "--data-dir", folder, "--host", "127.0.0.1", "--port", port]
    log = Path(folder) / "server.log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            until = time.monotonic() + 60
            while b"listening" not in log.read_bytes():
                if process.poll() is not None or time.monotonic() > until:
                    msg = "the Milvus Lite server did not begin to listen"
                    raise RuntimeError(msg)
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@contextmanager
def knowledge_at(*, embedded: bool) -> Iterator[str]:
    """Where the knowledge is: in this process, or in a server's."""
    with TemporaryDirectory() as folder:
        if embedded:
            yield str(Path(folder) / "knowledge.db")
        else:
            with lite_server(folder) as address:
                yield address


def with_few_arenas() -> None:
    """Starts this process anew with two of glibc's arenas, if nobody chose: by default it has 8 a core, and keeps free memory in each of them."""
    if "MALLOC_ARENA_MAX" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "MALLOC_ARENA_MAX": "2"})


def main() -> int:
    """Runs and prints; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    load = Load()
    parser.add_argument("--turns", type=int, default=load.turns)
    parser.add_argument("--minutes", type=float, default=load.minutes, help="no turn begins after so many minutes")
    parser.add_argument("--rate", type=float, default=load.rate, help="share of the calls that fail")
    parser.add_argument("--embedded", action="store_true", help="Milvus Lite in this process")
    parser.add_argument("--trace", action="store_true", help="print where memory grew; slower")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args()
    with_few_arenas()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is stopped, too
    load = Load(turns=given.turns, minutes=given.minutes, rate=given.rate)
    with knowledge_at(embedded=given.embedded) as uri:
        report = soak(uri, load, trace=given.trace, say=lambda line: print(line, file=sys.stderr, flush=True))
    told = asdict(report)
    print(json.dumps(told, indent=1) if given.json else "\n".join(f"{name}: {value}" for name, value in told.items()))
    return int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main())
