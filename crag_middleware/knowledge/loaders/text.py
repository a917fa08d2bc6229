"""Plain text, reStructuredText and Markdown, which are text already."""

import re

from crag_middleware.knowledge.loaders.draft import Draft, clean
from crag_middleware.knowledge.loaders.encoding import decode

_FRONT_MATTER = re.compile(r"---[ \t]*\n((?:(?:[\w-]+[ \t]*:|[ \t]+\S|#|-[ \t]).*\n|[ \t]*\n)*?)(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
"""What Markdown tools keep at the top of a file about it, in YAML."""

_TITLE = re.compile(r"^title[ \t]*+:(.*)$", re.MULTILINE)

_LINE_OF_SIGNS = r"([=\-~^\"'`#*+.:<>_])\{}*"
_UNDERLINED = re.compile(
    rf"^(?:(?P<over>{_LINE_OF_SIGNS.format(2)})[ \t]*\n)?(?P<title>(?![^\w\n]*\n).*\S)[ \t]*\n(?P<under>{_LINE_OF_SIGNS.format(5)})[ \t]*$",
    re.MULTILINE,
)


def read(data: bytes, encoding: str | None) -> Draft:
    """Plain text as it is."""
    return Draft(clean(decode(data, encoding)))


def read_markdown(data: bytes, encoding: str | None) -> Draft:
    """Markdown as it is, without its front matter."""
    text = clean(decode(data, encoding))
    front = _FRONT_MATTER.match(text)
    if front is None:
        return Draft(text)
    found = _TITLE.search(front[1])
    title = found[1].strip() if found else ""
    return Draft(text[front.end() :], title[1:-1] if title[1:] and title[0] == title[-1] in "'\"" else title)


def read_rst(data: bytes, encoding: str | None) -> Draft:
    """ReStructuredText with headings as in Markdown, which other signs than ours would be fences of code in.

    The signs stand for levels in the order in which they first occur.
    """
    levels: dict[tuple[str, bool], int] = {}

    def heading(match: re.Match[str]) -> str:
        over, title, under = match["over"], match["title"].strip(), match["under"]
        if len(under) < min(4, len(title)) or (over is None and match["title"][0] == " ") or over not in (None, under):
            return match.group()
        level = levels.setdefault((under[0], over is not None), len(levels) + 1)
        return f"{'#' * min(level, 6)} {title}"

    return Draft(_UNDERLINED.sub(heading, clean(decode(data, encoding))))
