"""Which files of a folder are documents, under which names, and why others are not."""

import os
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.loading import SUFFIXES
from crag_middleware.tenancy import misread_by_server


@dataclass(frozen=True, slots=True)
class Left:
    """A file that did not get in.

    Attributes:
        source: Its name relative to the root.
        reason: Why, for people.
    """

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """A file to get in.

    Attributes:
        source: Its name relative to the root, with `/` and in Unicode's composed form on every system.
        path: Where it is.
        size: In bytes.
    """

    source: str
    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class Tree:
    """What lies under a path.

    Attributes:
        root: The name of the folder that sources are relative to.
        under: Where the path lies in the root, as `guides/`; empty for the root itself.
        files: By source.
        skipped: Files that are no documents.
        failed: Files and folders that can't be told.
    """

    root: str
    under: str
    files: tuple[Found, ...]
    skipped: tuple[Left, ...]
    failed: tuple[Left, ...]


def survey(path: Path, root: Path | None) -> Tree:
    """The documents under a path: itself if it is a file, else all files of the types known, but for hidden ones; links are not followed.

    Args:
        path: A file or folder.
        root: The folder that sources are relative to; by default the path itself, or a file's folder.

    Raises:
        ConfigError: There is nothing at the path, or it does not lie under the root.
    """
    if not path.exists():
        msg = f"there is no file or folder {str(path)!r}"
        raise ConfigError(msg)
    top = (root or (path if path.is_dir() else path.parent)).resolve()
    where = path.parent.resolve() / path.name if path.is_file() else path.resolve()
    if not top.is_dir() or not where.is_relative_to(top):
        msg = f"the root must be a folder that {str(path)!r} lies under, got {str(root)!r}"
        raise ConfigError(msg)
    files: dict[str, Found] = {}
    skipped, failed = [], []
    for entry, trouble in [(where, None)] if path.is_file() else _entries(where):
        source = named(entry.relative_to(top).as_posix())
        reason = trouble or ("another file has the same name but for its Unicode form" if source in files else _unusable(source))
        if reason:
            failed.append(Left(_printable(source), reason))
        elif entry != where and (reason := _no_document(entry)):
            skipped.append(Left(source, reason))
        else:
            files[source] = Found(source, entry, _size(entry))
    under = "" if where == top or path.is_file() else named(where.relative_to(top).as_posix()) + "/"
    return Tree(named(top.name) or "/", under, tuple(files[source] for source in sorted(files)), tuple(skipped), tuple(failed))


def named(name: str) -> str:
    """The name as it is kept: systems differ in whether they take accents apart."""
    return unicodedata.normalize("NFC", name)


def _entries(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """All files that are not hidden, and the folders that can't be read, with why not."""
    unread: list[OSError] = []
    for where, folders, names in os.walk(folder, onerror=unread.append):
        links = [name for name in folders if os.path.islink(os.path.join(where, name))]
        folders[:] = sorted(name for name in folders if not _hidden(name) and name not in links)
        yield from ((Path(where, name), None) for name in sorted([*names, *links]) if not _hidden(name))
    yield from ((Path(error.filename), f"the folder can't be read: {error.strerror}") for error in unread)


def _hidden(name: str) -> bool:
    """Whether nobody means it: dot files, and those that an office program keeps beside an open document."""
    return name.startswith((".", "~$"))


def _no_document(path: Path) -> str | None:
    """Why a file of a folder is none; one that can't be looked at is for the loader to tell."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return "a symbolic link, which might lead out of the folder"
    if not stat.S_ISREG(mode):
        return "no regular file"
    return None if path.suffix.lower() in SUFFIXES else f"no known type: {path.suffix or 'a name without an ending'}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _unusable(source: str) -> str | None:
    """Why a name can't be kept and looked up again."""
    if source != _printable(source):
        return "its name is no valid text; rename it"
    if misread_by_server(source):
        return "its name holds Chinese characters beyond U+FFFF, which a Milvus server misreads when it looks them up; rename it"
    return None


def _printable(source: str) -> str:
    return source.encode("utf-8", "backslashreplace").decode()
