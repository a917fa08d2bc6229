"""Measures `stages/injection.py`: how many texts of each family are taken for orders to a model.

    python tools/injection/measure.py FILE.jsonl ... [--half 0|1] [--show N]

Reads rows with `family`, `label` and `text` (attacks, and harmless texts with the same words), SafeRAG's (`task`, `clean`, `attack`), and any others as clean
passages. Texts fall into two halves by a hash, one to develop on and one to report. Missed attacks and false alarms are shown on request.
"""

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from crag_middleware.stages.injection import FLAGGED, injection


class Text(NamedTuple):
    """A text, its family, and whether it gives orders."""

    family: str
    orders: bool
    text: str


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--half", type=int, choices=(0, 1), help="only this half of the texts")
    parser.add_argument("--show", type=int, default=0, help="show so many wrong texts of each family")
    options = parser.parse_args()
    families: defaultdict[tuple[bool, str], list[bool]] = defaultdict(list)
    for family, orders, text in dict.fromkeys(item for file in options.files for item in texts(file)):
        if options.half is not None and hashlib.sha256(text.encode()).digest()[0] % 2 != options.half:
            continue
        found = injection(text)
        flagged = found.score >= FLAGGED
        families[orders, family].append(flagged)
        if flagged != orders and families[orders, family].count(not orders) <= options.show:
            print(f"{'missed' if orders else 'false alarm'} {found.score:.2f} {','.join(found.kinds)} [{family}] {text[:300]!r}")
    for orders, family in sorted(families, reverse=True):
        flags = families[orders, family]
        print(f"{'orders' if orders else 'clean '}  {family:<48} {sum(flags):>5} of {len(flags):>6}  {sum(flags) / len(flags):>7.2%}")


def texts(file: Path) -> Iterator[Text]:
    """The texts of a file."""
    with file.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if "family" in row:
                source = row["source"].split()[0]
                lang = f" {row['lang']}" if row["lang"] in ("en", "zh") else " other" if source != "NotInject" else ""
                yield Text(f"{source} {row['family']}{lang}", row["label"] == "injection", row["text"])
            elif "attack" in row:
                yield from (Text("SafeRAG clean", False, text) for text in row["clean"])
                yield from (Text(f"SafeRAG {row['task']}", row["task"] == "WDoS", text) for text in row["attack"])
            else:
                yield from (Text(f"{file.stem}", False, text) for text in _passages(row))


def _passages(row: dict[str, Any]) -> Iterator[str]:
    for part in (row, *row.get("passages", ()), *row.get("paragraphs", ())):
        text = part.get("text") or part.get("content") or part.get("context") or part.get("evidence") or part.get("sentences")
        if text:
            yield text if isinstance(text, str) else "\n".join(map(str, text))


if __name__ == "__main__":
    main()
