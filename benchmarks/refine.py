"""What splitting and picking strips costs: 20 passages of 800 characters, English and Chinese, and the rate on long texts.

    python benchmarks/refine.py [--repeat 50]

Prints the least milliseconds over all repeats, which is the figure that other load on the machine disturbs least. `first` is the first call on texts whose
words were never seen before.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

from texts import QUESTIONS, by_language

from crag_middleware.stages.company import Page
from crag_middleware.stages.refine import select
from crag_middleware.stages.sentences import split


def split_all(texts: list[str]) -> int:
    """The number of strips of all texts."""
    return sum(len(split(text)) for text in texts)


def least_ms(call: Callable[[], object], repeat: int) -> float:
    """The least time of one call."""
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return 1000 * min(times)


def main() -> None:
    """Prints one line a language and one a text of a million characters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=50)
    repeat = parser.parse_args().repeat
    texts = by_language()
    for language, question in QUESTIONS.items():
        first = least_ms(partial(select, question, texts[language], max_strips=3), 1)
        whole = least_ms(partial(select, question, texts[language], max_strips=3), repeat)
        splitting = least_ms(partial(split_all, texts[language]), repeat)
        strips = split_all(texts[language])
        print(f"{language}: split and select {whole:.2f} ms (first {first:.2f} ms), split alone {splitting:.2f} ms, {strips} strips")
    longs = {
        "en": " ".join(texts["en"] * 63),
        "zh": "".join(texts["zh"] * 63),
        "table": "| plan | price |\n|---|---|\n" + "| the plan of build 7 | 9,100.50 USD a month |\n" * 22_000,
        "html table": "<table>" + "<tr><td class='a'>the plan of build 7</td><td>9,100.50</td></tr>\n" * 15_000,
        "list": "Limits:\n" + "- the plan of build 7: 9,100 calls\n" * 28_000,
        "dots": "." * 10**6,
        "brackets": "[" * 10**6,
        "angle brackets": "<" * 10**6,
        "cells": "<td>" * 250_000,
        "bars": "|" * 10**6,
        "quotes": "“a. " * 250_000,
    }
    for name, text in longs.items():
        page = Page.of(text)
        some, worth = range(0, len(page.strips), 1 + len(page.strips) // 300), [0.0] * len(page.strips)
        print(
            f"{name}, {len(text):,} characters: split {least_ms(partial(split, text), 3):.0f} ms, "
            f"what {len(some)} of {len(page.strips):,} strips need {least_ms(partial(page.complete, some, worth), 3):.0f} ms"
        )


if __name__ == "__main__":
    main()
