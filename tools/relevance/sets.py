"""Sets of passages to fit the offline evaluator's weights on, as a search would bring them: the answer's place, and what is nearest beside it.

From public data whose licence allows it: SQuAD 2.0 (CC BY-SA 4.0), CLAPnq (Apache-2.0) and CMRC 2018 (CC BY-SA 4.0). Their texts stay where they are; only
the weights enter the package.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from crag_middleware import Passage
from crag_middleware.evals.datasets import Item
from crag_middleware.stages.sentences import split
from crag_middleware.stages.words import terms

SIZES = (1, 2, 3, 4, 5, 5, 6, 8, 10, 10, 12, 15)
"""How many passages a set has, drawn at random: evaluators see few and many."""

MAX_CHARS = 1200

Near = Callable[[str, Sequence[str]], Sequence[float]]
"""How near each text is to a question in meaning."""

Window = tuple[str, str]
"""A title, possibly empty, and a text."""


@dataclass(frozen=True)
class _Asked:
    """A question, the windows that answer it, those that don't, and those of the latter that stand beside the answer."""

    id: str
    lang: str
    source: str
    question: str
    answers: list[Window]
    others: list[Window]
    beside: list[Window]


def near_by(embeddings: Embeddings) -> Near:
    """Nearness by these embeddings; each text is embedded once."""
    known: dict[str, np.ndarray] = {}

    def vectors(texts: Sequence[str]) -> np.ndarray:
        if new := [text for text in dict.fromkeys(texts) if text not in known]:
            known.update(zip(new, np.array(embeddings.embed_documents(new)), strict=True))
        return np.array([known[text] for text in texts])

    def near(question: str, texts: Sequence[str]) -> Sequence[float]:
        similar: Sequence[float] = vectors(texts) @ vectors([question])[0]
        return similar

    return near


def public_sets(folder: Path, near: Near, *, seed: int = 11) -> list[Item]:
    """The sets made of the public data in a folder, the same each time."""
    chance = random.Random(seed)
    asked = [*_squad(folder, chance), *_cmrc(folder, chance), *_clapnq(folder, chance)]
    return [item for one in asked if (item := _set(one, near, chance))]


def _set(one: _Asked, near: Near, chance: random.Random) -> Item | None:
    """A few of the windows that answer, and of the others mostly the nearest."""
    size = chance.choice(SIZES)
    most = max(1, size - 1) if size > 1 else chance.choice([0, 1])
    relevant = chance.sample(one.answers, min(len(one.answers), chance.choice([1, 1, 2, 3, 4, 5]), most))
    hard = _nearest(one, near)[:15]
    pool = list(dict.fromkeys([*hard[:size], *one.beside[:2], *chance.sample(one.others, min(8, len(one.others)))]))
    incorrect = [window for window in pool if chance.random() < 0.85][: size - len(relevant)]
    windows = [(window, True) for window in relevant] + [(window, False) for window in incorrect]
    chance.shuffle(windows)
    if not windows:
        return None
    passages = tuple(Passage(str(n), text, title=title) for n, ((title, text), _) in enumerate(windows))
    return Item(
        id=one.id,
        lang=one.lang,
        source=one.source,
        question=one.question,
        passages=passages,
        labels=tuple(label for _, label in windows),
        answerable=bool(relevant),
    )


def _nearest(one: _Asked, near: Near) -> list[Window]:
    """The windows that don't answer, nearest first, by meaning and words as a hybrid search ranks."""
    asked = frozenset(terms(one.question))
    shared = [len(asked & _terms(window)) / max(1, len(asked)) for window in one.others]
    ranked = zip(near(one.question, [text for _, text in one.others]) if one.others else (), shared, one.others, strict=True)
    return [window for _, _, window in sorted(ranked, key=lambda it: it[0] + 0.6 * it[1], reverse=True)]


@cache
def _terms(window: Window) -> frozenset[str]:
    return frozenset(terms(" ".join(window)))


def _squad(folder: Path, chance: random.Random, *, each: int = 175) -> Iterator[_Asked]:
    for article in _lines(folder / "answerability.jsonl"):
        title = article["title"].replace("_", " ")
        paragraphs = [_sentences(p["context"]) for p in article["paragraphs"]]
        windows = [(n, text) for n, sentences in enumerate(paragraphs) for text in _windows(sentences, " ", chance)]
        questions = [(n, qa) for n, p in enumerate(article["paragraphs"]) for qa in p["qas"]]
        chance.shuffle(questions)
        for count, (n, qa) in enumerate(questions[:each]):
            shown = title if chance.random() < 0.4 else ""
            answers = [a if isinstance(a, str) else a["text"] for a in qa["answers"]] if qa["answerable"] else []
            place = _place(qa["q"], paragraphs[n], answers)
            if qa["answerable"] and place is None:
                continue
            others = [(m, text) for m, text in windows if not any(a.casefold() in text.casefold() for a in answers)]
            yield _Asked(
                f"squad-{title}-{count}",
                "en",
                "SQuAD 2.0",
                qa["q"],
                [] if place is None else [(shown, text) for text in _around(paragraphs[n], place, " ")],
                [(shown, text) for _, text in others],
                _shuffled([(shown, text) for m, text in others if m == n], chance),
            )


def _cmrc(folder: Path, chance: random.Random) -> Iterator[_Asked]:
    contexts = {line["ctx"]: _sentences(line["context"]) for line in _lines(folder / "cmrc_contexts.jsonl")}
    windows = [(name, text) for name, sentences in contexts.items() for text in _windows(sentences, "", chance)]
    for line in _lines(folder / "evidence.jsonl"):
        place = _place(line["question"], contexts[line["ctx"]], line["answers"]) if line["source"].startswith("CMRC") else None
        if place is None:
            continue
        others = [(name, text) for name, text in windows if not any(a in text for a in line["answers"])]
        yield _Asked(
            line["id"],
            "zh",
            "CMRC 2018",
            line["question"],
            [("", text) for text in _around(contexts[line["ctx"]], place, "")] if chance.random() < 0.6 else [],
            [("", text) for _, text in others],
            _shuffled([("", text) for name, text in others if name == line["ctx"]], chance),
        )


def _clapnq(folder: Path, chance: random.Random) -> Iterator[_Asked]:
    answerable = [line for line in _lines(folder / "evidence.jsonl") if line["source"].startswith("CLAPnq")]
    documents = [(line, line["passages"][0]) for line in answerable] + [
        (line, line) for line in _lines(folder / "unanswerable_clapnq.jsonl")
    ]
    windows = [(line["id"], (it["title"], text[:MAX_CHARS])) for line, it in documents for text in _windows(it["sentences"], " ", chance)]
    for line, it in documents:
        gold = it.get("gold", ())
        answers = [(it["title"], text[:MAX_CHARS]) for place in gold[:2] for text in _around(it["sentences"], place, " ")]
        told = [it["sentences"][place].strip() for place in gold]
        others = [(name, window) for name, window in windows if not any(sentence in window[1] for sentence in told)]
        beside = _shuffled([window for name, window in others if name == line["id"]], chance)
        for again in range(2):
            yield _Asked(f"{line['id']}-{again}", "en", "CLAPnq", line["question"], answers, [window for _, window in others], beside)


def _place(question: str, sentences: Sequence[str], answers: Sequence[str]) -> int | None:
    """The sentence that holds an answer and most of the question's words; None if none holds an answer."""
    asked = frozenset(terms(question))
    places = [n for n, sentence in enumerate(sentences) if any(answer in sentence for answer in answers)]
    return max(places, key=lambda n: len(asked.intersection(terms(sentences[n]))), default=None)


def _around(sentences: Sequence[str], place: int, joint: str) -> list[str]:
    """The texts with up to two sentences before and after one."""
    return sorted({joint.join(sentences[max(0, place - before) : place + 1 + after]) for before in range(3) for after in range(3)})


def _windows(sentences: Sequence[str], joint: str, chance: random.Random) -> Iterator[str]:
    """The text cut into pieces of one to four sentences."""
    begin = 0
    while begin < len(sentences):
        end = begin + chance.choice([1, 1, 2, 2, 3, 4])
        yield joint.join(sentences[begin:end])
        begin = end


def _sentences(text: str) -> list[str]:
    return [strip.text for strip in split(text)]


def _shuffled(windows: list[Window], chance: random.Random) -> list[Window]:
    return chance.sample(windows, len(windows))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())
