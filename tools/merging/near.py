"""Measures what a cosine similarity means to the merge: how near different passages, copies and changed facts come to each other.

    python tools/merging/near.py FILE.jsonl ... [--embeddings local|e5] [--limit N]

Takes the texts of each file's rows (`content`, `context` or `text`, or those of their `passages`), cuts them into chunks of about 500 characters at ends of
sentences, and compares by file and language. `different` are any two chunks; of each chunk there is a `reformatted` copy, a lightly `edited` one, and one
that is `changed`: with another number, else a negation. Prints the shares at or above each similarity and, last, the share that the merge takes for copies
at 0.95.
"""

import argparse
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crag_middleware.adapters.local_embeddings import E5Embeddings, LocalEmbeddings
from crag_middleware.stages.merge import MergeRules, marked, merge
from crag_middleware.stages.sentences import split
from crag_middleware.stages.words import language
from crag_middleware.types import Passage

CUTS = (0.90, 0.95, 0.98)
CHARS = 500
_LONG_WORD = re.compile(r"\b[a-z]{7,}\b")
_AUXILIARY = re.compile(r"\b(?:is|was|are|were|has|can|will)\b")
_VERB = re.compile(r"(?=[是有将为由在])")


def main() -> None:
    """Prints a table for each file and language."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--embeddings", choices=("local", "e5"), default="local")
    parser.add_argument("--limit", type=int, default=300, help="chunks of a file and language, at most")
    options = parser.parse_args()
    embed = (LocalEmbeddings() if options.embeddings == "local" else E5Embeddings()).embed_documents
    print(f"{options.embeddings:<44}{'pairs':>8}" + "".join(f"{f'>= {cut}':>9}" for cut in CUTS) + f"{'merged':>9}")
    for file in options.files:
        by_language: defaultdict[str, list[str]] = defaultdict(list)
        for chunk in dict.fromkeys(chunk for text in texts(file) for chunk in chunks(text)):
            by_language[language(chunk)].append(chunk)
        for spoken, found in sorted(by_language.items()):
            measure(f"{file.stem} {spoken}", random.Random(0).sample(found, min(len(found), options.limit)), embed)


def texts(file: Path) -> Iterator[str]:
    """The texts of a file's rows."""
    with file.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            for part in row.get("passages", [row]):
                yield from (part[key] for key in ("content", "context", "text") if isinstance(part.get(key), str))


def chunks(text: str) -> Iterator[str]:
    """The text in chunks of whole sentences, each about `CHARS` long; a shorter rest is left out unless it is all there is."""
    begin = 0
    for strip in split(text):
        if strip.end - begin >= CHARS:
            yield text[begin : strip.end]
            begin = strip.end
    if not begin and text.strip():
        yield text


def measure(name: str, found: list[str], embed: Callable[[list[str]], list[list[float]]]) -> None:
    """Prints one row for each kind of pair."""
    vectors = np.array(embed(found))
    similar = vectors @ vectors.T
    upper = np.triu_indices(len(found), 1)
    passages = [_passage(i, text, vector) for i, (text, vector) in enumerate(zip(found, vectors, strict=True))]
    _row(f"{name} different", similar[upper], (len(found) - len(merge(passages, RULES))) / max(1, len(upper[0])))
    for make in (reformatted, edited, changed):
        pairs = [(i, other) for i, text in enumerate(found) if (other := make(text)) != text]
        if not pairs:
            continue
        others = np.array(embed([other for _, other in pairs]))
        both = [(_passage(i, found[i], vectors[i]), _passage(-1, other, v)) for (i, other), v in zip(pairs, others, strict=True)]
        near = np.einsum("ij,ij->i", vectors[[i for i, _ in pairs]], others)
        _row(f"{name} {make.__name__}", near, sum(len(merge(pair, RULES)) == 1 for pair in both) / len(both))


def reformatted(text: str) -> str:
    """As a list in Markdown, with its first word in bold and its lines broken elsewhere."""
    return "\n".join(f"- {strip.text}" for strip in split(re.sub(r"^(\w+)", r"**\1**", text))).replace(", ", ",\n  ")


def edited(text: str) -> str:
    """With words of no weight before it, and a slip of the pen: in English two letters of a long word changed round, in Chinese a particle left out."""
    if language(text) == "zh":
        return "参考资料：" + text.replace("的", "", 1)
    return "For your reference: " + _LONG_WORD.sub(lambda word: word.group()[:-2] + word.group()[:-3:-1], text, count=1)


def changed(text: str) -> str:
    """With its first digit counted up, else its first verb negated."""
    if re.search(r"\d", text):
        return re.sub(r"\d", lambda digit: str((int(digit.group()) + 1) % 10), text, count=1)
    return _VERB.sub("不", text, count=1) if language(text) == "zh" else _AUXILIARY.sub(r"\g<0> not", text, count=1)


RULES = MergeRules(weights={}, half_life_days={}, by_type={}, now_ms=0)


def _passage(number: int, text: str, vector: NDArray[np.float64]) -> Passage:
    (passage,) = marked([Passage(id=str(number), text=text, vector=vector.tolist())], "knowledge", number)
    return passage


def _row(name: str, near: NDArray[np.float64], merged: float) -> None:
    print(f"{name:<44}{len(near):>8}" + "".join(f"{np.mean(near >= cut):>9.2%}" for cut in CUTS) + f"{merged:>9.2%}")


if __name__ == "__main__":
    main()
