"""Puts into the site what its pages link to outside of `docs/`: examples, tools and the documents beside the README, each as a page of its own.

A hook of MkDocs, named in mkdocs.yml. With it the site has no link that leads out of it into a checkout, and one to what is not there fails the strict build.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

FOLDER = "source/"
"""Where such pages stand in the site: this and their path in the repository."""

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|[#/])[^)\s#]+")
"""A relative link, without its anchor."""

_NAMED = re.compile(rf"{FOLDER}[\w./-]+")
"""Such a page in the navigation."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each file that the navigation names or a page links to, and so on from there."""
    root = _root(config)
    named = set(_NAMED.findall(str(config.nav)))
    waiting = [uri.removeprefix(FOLDER) for uri in named]
    for file in files.documentation_pages():
        waiting += _linked(_origin(file.src_uri, root), file.content_string)
    while waiting:
        path = waiting.pop()
        uri = _page(path)
        if files.get_file_from_path(uri) is None and (root / path).is_file():
            text = (root / path).read_text(encoding="utf-8")
            written = path.endswith(".md")
            shown = InclusionLevel.INCLUDED if uri in named else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, uri, content=text if written else _listing(path, text), inclusion=shown))
            waiting += _linked(path, text) if written else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links to files of the repository turned into links to their pages."""
    here = page.file.src_uri
    origin = _origin(here, _root(config))

    def inside(link: re.Match[str]) -> str:
        uri = _page(normpath(join(dirname(origin), link[0])))
        return relpath(uri, dirname(here)) if files.get_file_from_path(uri) else link[0]

    return _LINK.sub(inside, markdown) if origin.endswith(".md") else markdown


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _page(path: str) -> str:
    """Where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return FOLDER + path + ("" if path.endswith(".md") else ".md")


def _origin(uri: str, root: Path) -> str:
    """The file of the repository that a page shows."""
    if not uri.startswith(FOLDER):
        return f"docs/{uri}"
    path = uri.removeprefix(FOLDER)
    return path if (root / path).is_file() else path.removesuffix(".md")


def _linked(origin: str, text: str) -> list[str]:
    return [normpath(join(dirname(origin), link)) for link in _LINK.findall(text)]


def _listing(path: str, text: str) -> str:
    """A page that shows a file, in a fence that no file has."""
    kind = {"py": "python", "json": "json", "yaml": "yaml", "yml": "yaml", "toml": "toml", "sh": "sh"}.get(path.rpartition(".")[2], "text")
    return f"# {path}\n\n~~~~~~{kind}\n{text}\n~~~~~~\n"
