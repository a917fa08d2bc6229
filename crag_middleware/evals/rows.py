"""What a run found out, one row a question, and the file it is kept in. Rows hold ids and numbers, never a question or a passage.

The file is JSON lines: first whose probabilities these are, then the rows as they came. Of two rows for one question the later one counts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from crag_middleware.errors import ConfigError
from crag_middleware.evals.datasets import Item
from crag_middleware.types import EvaluatorKey, Label

VERSION = 1
"""Of the file; a file of another version is refused."""

Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question's grades as the evaluator gave them, before any calibration.

    Attributes:
        id: The question's id.
        digest: Of the question with its passages and labels.
        source: The data set.
        lang: The language.
        weak: The labels were not given passage by passage by a person.
        answerable: Whether the passages together answer the question; None if unknown.
        labels: For each passage whether it is relevant; None if unknown.
        probabilities: For each passage what the evaluator said; None if it could not say. Empty if it failed.
        stated: For each passage the evaluator's own label. Empty if it failed.
        error: Why it failed, as a short code; empty if it did not.
        seconds: How long it took.
        calls: How many model calls it took, as far as LangChain sees them.
        input_tokens: Tokens that the models read, where they tell.
        output_tokens: Tokens that the models wrote, where they tell.
    """

    id: str
    digest: str
    source: str
    lang: str
    weak: bool
    answerable: bool | None
    labels: tuple[bool | None, ...]
    probabilities: tuple[Probability | None, ...] = ()
    stated: tuple[Label, ...] = ()
    error: str = ""
    seconds: Annotated[float, Field(ge=0)]
    calls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0


_ROW = TypeAdapter(Row)


def start(path: Path, key: EvaluatorKey) -> None:
    """A new file without rows.

    Raises:
        ConfigError: There is a file already, or none can be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps({"version": VERSION, **asdict(key)}, ensure_ascii=False) + "\n")
    except FileExistsError:
        msg = f"{str(path)!r} is there already; resume that run, or name another place"
        raise ConfigError(msg, reason="bad_run") from None
    except OSError as error:
        msg = f"no run can be written to {str(path)!r}: {error.strerror}"
        raise ConfigError(msg, reason="bad_run") from error


def append(path: Path, row: Row) -> None:
    """One more row at the end of the file."""
    with path.open("ab") as file:
        file.write(_ROW.dump_json(row) + b"\n")


def resume(path: Path, key: EvaluatorKey, items: Sequence[Item]) -> dict[str, Row]:
    """The rows of a run that is to go on, without those that failed, by question id. A last line that breaks off is cut from the file.

    Raises:
        ConfigError: There is no such file, or it was made by another evaluator or on other questions.
    """
    owner, rows = read(path, whole=False)
    if owner != key:
        msg = f"{str(path)!r} holds grades of {_shown(owner)}, and this is {_shown(key)}; name another place for this run"
        raise ConfigError(msg, reason="foreign_run")
    digests = {item.id: item.digest for item in items}
    foreign = [row.id for row in rows.values() if digests.get(row.id) != row.digest]
    if foreign:
        msg = (
            f"{str(path)!r} was made on other questions: {len(foreign)} of its {len(rows)} are not, or not the same, in this data, "
            f"such as {foreign[0]!r}; resume with the same data and options, or name another place"
        )
        raise ConfigError(msg, reason="foreign_run")
    held = path.read_bytes()
    if not held.endswith(b"\n"):
        path.write_bytes(held[: held.rindex(b"\n") + 1])
    return {name: row for name, row in rows.items() if not row.error}


def read(path: Path, *, whole: bool = True) -> tuple[EvaluatorKey, Mapping[str, Row]]:
    """Whose grades a file holds, and its rows by question id.

    Args:
        path: The file.
        whole: A last line that breaks off is an error, too.

    Raises:
        ConfigError: There is no such file, or it holds something else.
    """
    try:
        first, end, rest = path.read_bytes().partition(b"\n")
    except OSError as error:
        msg = f"there is no run at {str(path)!r}: {error.strerror}"
        raise ConfigError(msg, reason="bad_run") from error
    owner = _owner(path, first if end else b"")
    *lines, last = rest.split(b"\n")
    if whole and last:
        lines.append(last)
    rows = {}
    for number, line in enumerate(lines, 2):
        try:
            row = _ROW.validate_json(line)
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_url=False)[0]
            msg = f"{path}, line {number}: no row of a run: `{'.'.join(map(str, wrong['loc']))}`: {wrong['msg']}"
            raise ConfigError(msg, reason="bad_run") from None
        if not row.error and not len(row.labels) == len(row.probabilities) == len(row.stated):
            msg = f"{path}, line {number}: no row of a run: `labels`, `probabilities` and `stated` must be of one length"
            raise ConfigError(msg, reason="bad_run")
        rows[row.id] = row
    return owner, rows


def _owner(path: Path, line: bytes) -> EvaluatorKey:
    try:
        found: Any = json.loads(line)
    except ValueError:
        found = None
    match found:
        case {"version": int(version), "evaluator": str(evaluator), "model": str(model), "prompt": str(prompt)} if version == VERSION:
            return EvaluatorKey(evaluator, model, prompt)
    msg = f"{str(path)!r} is no run of version {VERSION}; `crag eval relevance` writes one"
    raise ConfigError(msg, reason="bad_run")


def _shown(key: EvaluatorKey) -> str:
    return " ".join(filter(None, (key.evaluator, repr(key.model) if key.model else "", f"(prompt {key.prompt!r})" if key.prompt else "")))
