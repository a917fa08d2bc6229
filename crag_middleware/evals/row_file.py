"""The file that a run's rows are kept in: JSON lines, first whose run it is, then the rows as they came. Of two rows for one question the later counts."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from crag_middleware.errors import ConfigError
from crag_middleware.evals.datasets import Asked

VERSION = 1
"""Of the files; a file of another version is refused."""


Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the row of every kind of run has.

    Attributes:
        id: The question's id.
        digest: Of the question with all that the run depends on.
        source: The data set.
        lang: The language.
        error: Why the question failed, as a short code; empty if it did not.
        seconds: How long it took.
        calls: How many model calls it took, as far as LangChain sees them.
        input_tokens: Tokens that the models read, where they tell.
        output_tokens: Tokens that the models wrote, where they tell.
    """

    id: str
    digest: str
    source: str
    lang: str
    error: str = ""
    seconds: Annotated[float, Field(ge=0)]
    calls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0


O = TypeVar("O")  # noqa: E741, an owner
R = TypeVar("R", bound=Kept)


@dataclass(frozen=True, slots=True)
class RowFile(Generic[O, R]):
    """How the rows of one kind of run are kept.

    Attributes:
        command: What writes such files, for people.
        holds: What they hold, for people.
        owner: The frozen dataclass that says whose run it is.
        row: The frozen dataclass of a row.
        shown: An owner for people.
        wrong: What is wrong with a row besides its types, for people; empty if nothing.
    """

    command: str
    holds: str
    owner: type[O]
    row: type[R]
    shown: Callable[[O], str]
    wrong: Callable[[R], str]

    def start(self, path: Path, owner: O) -> None:
        """A new file without rows.

        Raises:
            ConfigError: There is a file already, or none can be written there.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(json.dumps(self._header(owner), ensure_ascii=False) + "\n")
        except FileExistsError:
            msg = f"{str(path)!r} is there already; resume that run, or name another place"
            raise ConfigError(msg, reason="bad_run") from None
        except OSError as error:
            msg = f"no run can be written to {str(path)!r}: {error.strerror}"
            raise ConfigError(msg, reason="bad_run") from error

    def append(self, path: Path, row: R) -> None:
        """One more row at the end of the file."""
        with path.open("ab") as file:
            file.write(TypeAdapter(self.row).dump_json(row) + b"\n")

    def resume(self, path: Path, owner: O, items: Sequence[Asked]) -> dict[str, R]:
        """The rows of a run that is to go on, without those that failed, by question id. A last line that breaks off is cut from the file.

        Raises:
            ConfigError: There is no such file, or it is another's, or was made on other questions.
        """
        found, rows = self.read(path, whole=False)
        if found != owner:
            msg = (
                f"{str(path)!r} holds {self.holds} of {self.shown(found)}, and this is {self.shown(owner)}; name another place for this run"
            )
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

    def read(self, path: Path, *, whole: bool = True) -> tuple[O, Mapping[str, R]]:
        """Whose run a file holds, and its rows by question id.

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
        owner = self._owner(path, first if end else b"")
        *lines, last = rest.split(b"\n")
        if whole and last:
            lines.append(last)
        rows, adapter = {}, TypeAdapter(self.row)
        for number, line in enumerate(lines, 2):
            try:
                row = adapter.validate_json(line)
                wrong = self.wrong(row)
            except ValidationError as error:
                found = error.errors(include_input=False, include_url=False)[0]
                wrong = f"`{'.'.join(map(str, found['loc']))}`: {found['msg']}"
            if wrong:
                msg = f"{path}, line {number}: no row of a run: {wrong}"
                raise ConfigError(msg, reason="bad_run")
            rows[row.id] = row
        return owner, rows

    def _owner(self, path: Path, line: bytes) -> O:
        try:
            found: Any = json.loads(line)
            owner = TypeAdapter(self.owner).validate_python({**found})
            if found == self._header(owner):
                return owner
        except (ValueError, TypeError):  # no JSON, no object, or not with these fields
            pass
        msg = f"{str(path)!r} is no run of version {VERSION}; `{self.command}` writes one"
        raise ConfigError(msg, reason="bad_run")

    def _header(self, owner: O) -> dict[str, Any]:
        return {"version": VERSION, **TypeAdapter(self.owner).dump_python(owner)}
