"""What a hybrid search of one tenant's rows takes as the collection grows: Milvus Lite, 20 tenants, texts of 300 characters, half Latin, half Chinese.

    python benchmarks/retrieval.py [--sizes 1000 10000 100000] [--searches 100]

Prints a row for each size: rows stored a second, the median and the 95th percentile of one search in milliseconds, just after the rows were stored and once
they were flushed, which is when Milvus Lite builds its indexes; the process' largest memory, and the size on disk.

Vectors are random, of 384 numbers, so that nothing but the store is measured: embedding a text takes 2 to 20 ms more. Words are random, too, of a vocabulary of
20,000 in either script, with Zipf's frequencies. Each size has a process of its own, and Milvus Lite runs in it. 100,000 rows take some minutes.
"""

import argparse
import random
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import jieba
import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_milvus import Milvus

from crag_middleware import MilvusRetriever, open_knowledge
from crag_middleware.stages.chinese import load

DIMENSION = 384
TENANTS = 20
AT_ONCE = 2000
LIMIT = 20


@dataclass(frozen=True)
class Measured:
    """One size: rows a second, milliseconds, megabytes."""

    rows: int
    stored: float
    fresh: tuple[float, float]
    indexed: tuple[float, float]
    memory: float
    disk: float


class RandomEmbeddings(Embeddings):
    """Directions by chance."""

    model = "random"

    def __init__(self) -> None:
        self._chance = np.random.default_rng(7)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One for each text."""
        drawn = self._chance.normal(size=(len(texts), DIMENSION))
        vectors: list[list[float]] = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """One."""
        return self.embed_documents([text])[0]


FREQUENCIES = list(accumulate(1 / rank for rank in range(1, 20_001)))
"""Zipf's, added up."""


@cache
def words() -> tuple[list[str], list[str]]:
    """Made-up ones, and the commonest Chinese ones of two signs."""
    load()
    chinese = sorted((word for word in jieba.dt.FREQ if len(word) == 2), key=lambda word: -jieba.dt.FREQ[word])
    return ["".join(syllables) for syllables in product(("ka", "ro", "mi", "tes", "lun", "ber"), repeat=6)][:20_000], chinese[:20_000]


def text(number: int, chance: random.Random, size: int = 300) -> str:
    """A text of its own of so many characters; every second one is Chinese."""
    drawn = chance.choices(words()[number % 2], cum_weights=FREQUENCIES, k=size // 2)
    return f"{number} {('', ' ')[number % 2 == 0].join(drawn)}"[:size]


def measure(size: int, searches: int) -> Measured:
    """Stores so many rows and searches among them."""
    chance = random.Random(size)
    with TemporaryDirectory() as folder:
        store = open_knowledge(Path(folder) / "knowledge.db", RandomEmbeddings())
        begun = time.perf_counter()
        for start in range(0, size, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, size))
            store.add_texts(
                [text(n, chance) for n in numbers],
                [{"agent_id": f"tenant-{n % TENANTS}", "source": f"{n // 40}.md", "chunk_index": n} for n in numbers],
            )
        stored = size / (time.perf_counter() - begun)
        fresh = timed(store, size, searches, chance)
        store.client.flush(store.collection_name)
        indexed = timed(store, size, searches, chance)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        disk = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 2**20
        return Measured(size, stored, fresh, indexed, memory, disk)


def timed(store: Milvus, size: int, searches: int, chance: random.Random) -> tuple[float, float]:
    """The median and the 95th percentile of so many searches."""
    retriever = MilvusRetriever(store)
    times = []
    for n in range(searches + 5):
        question = text(n, chance, 40)
        begun = time.perf_counter()
        found = retriever.retrieve(question, agent_id=f"tenant-{n % TENANTS}", limit=LIMIT, timeout_s=60)
        times.append((time.perf_counter() - begun) * 1000)
        if len(found) != min(LIMIT, size // TENANTS):
            msg = f"a search found {len(found)} passages"
            raise AssertionError(msg)
    warm = times[5:]  # the first ones load what the others find loaded
    return statistics.median(warm), statistics.quantiles(warm, n=20)[-1]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000], metavar="ROWS")
    parser.add_argument("--searches", type=int, default=100)
    given = parser.parse_args()
    print(
        "| rows | rows a tenant | rows stored a second | just stored: p50, p95 | flushed: p50, p95 | memory, MB | disk, MB |\n"
        + "| --- " * 7
        + "|"
    )
    for size in given.sizes:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            m = pool.submit(measure, size, given.searches).result()
        print(
            f"| {m.rows:,} | {m.rows // TENANTS:,} | {m.stored:,.0f} | {m.fresh[0]:.0f}, {m.fresh[1]:.0f} | {m.indexed[0]:.0f}, {m.indexed[1]:.0f} "
            f"| {m.memory:,.0f} | {m.disk:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
