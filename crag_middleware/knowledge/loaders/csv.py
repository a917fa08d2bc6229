"""CSV: one record a row, as lines `column: value`, so that each can be understood on its own."""

import csv
from collections import Counter
from itertools import islice

from crag_middleware.errors import IngestError
from crag_middleware.knowledge.loaders.draft import Composer, Draft, clean, fold
from crag_middleware.knowledge.loaders.encoding import decode

DELIMITERS = ",\t;|"
SAMPLE_ROWS = 50
"""So many rows are looked at for the delimiter."""

_NOWHERE = "\x1f"
"""A delimiter that no clean text holds, for rows of a single column."""


def read(data: bytes, encoding: str | None) -> Draft:
    """The rows under the first, which names the columns; empty cells are left out, a cell without a name is called by its column's number.

    Raises:
        IngestError: With reason `unreadable`: it can't be parsed.
    """
    lines = clean(decode(data, encoding)).splitlines(keepends=True)
    delimiter = _delimiter(lines)
    composer = Composer()
    header: list[str] | None = None
    try:
        for row in csv.reader(lines, delimiter=delimiter):
            cells = [fold(cell) for cell in row]
            if not any(cells):
                continue
            if header is None:
                header = cells
                continue
            names = header + [""] * (len(cells) - len(header))
            named = zip(names, cells, strict=False)
            composer.paragraph("\n".join(f"{name or f'column {i}'}: {cell}" for i, (name, cell) in enumerate(named, 1) if cell))
    except csv.Error as error:
        msg = f"it can't be read as CSV ({error}); check its quotes"
        raise IngestError(msg, reason="unreadable") from None
    return Draft(composer.text or " | ".join(header or ()), has_headings=False)


def _delimiter(lines: list[str]) -> str:
    """What cuts the first rows into several cells, equally many in most.

    Not `csv.Sniffer`, which takes letters for delimiters and loses quotes inside cells.
    """

    def agreement(delimiter: str) -> tuple[int, int]:
        try:
            widths = Counter(len(row) for row in islice(csv.reader(lines, delimiter=delimiter), SAMPLE_ROWS) if row)
        except csv.Error:
            return 0, 0
        width, rows = widths.most_common(1)[0] if widths else (1, 0)
        return (rows, width) if width > 1 else (0, 0)

    best = max(DELIMITERS, key=agreement)
    return best if agreement(best)[0] else _NOWHERE
