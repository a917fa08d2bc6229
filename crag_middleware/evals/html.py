"""The blocks that pages are made of: one HTML file that needs nothing else, no script, no font, no address."""

from collections.abc import Iterable, Sequence
from html import escape

from crag_middleware.evals.statistics import Estimate

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5c6570; --line: #d9dde2; --ground: #ffffff; --note: #fff6e0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #a0a9b3; --line: #39424c; --ground: #14181c; --note: #33290f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; border-top: 1px solid var(--line); padding-top: 1.25rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); } .warning { background: var(--note); padding: .4rem .7rem; border-radius: .3rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: right; padding: .25rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; } th:first-child, td:first-child, .words { text-align: left; }
td { white-space: nowrap; } td.words { color: var(--soft); white-space: normal; min-width: 18rem; }
.scroll { overflow-x: auto; } .plots { display: flex; flex-wrap: wrap; gap: 1rem 2rem; align-items: flex-start; }
figure { margin: 0; max-width: 100%; } figure svg { max-width: 100%; height: auto; } figcaption { font-size: .85rem; color: var(--soft); max-width: 18rem; }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page of these parts; empty ones are left out."""
    body = "\n".join(filter(None, parts))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n'


def brief(value: Estimate | None) -> str:
    """An estimate with its interval, for a table."""
    if value is None:
        return "–"
    return f"{value.value:.2f}" if value.low is None else f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def paragraph(text: str, kind: str = "", *, tag: str = "p") -> str:
    """A text, escaped, of a kind that the style knows."""
    return f"<{tag}{f' class={kind!r}' if kind else ''}>{escape(text)}</{tag}>"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = -1) -> str:
    """A table whose first column names the row; the column `words` holds sentences."""
    top = "".join(f'<th scope="col"{_words(n == words)}>{escape(cell)}</th>' for n, cell in enumerate(head))
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td{_words(n == words)}>{escape(cell)}</td>" for n, cell in enumerate(row[1:], 1))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def figures(drawn: Iterable[tuple[str, str]]) -> str:
    """Drawings, as SVG, each with its caption, side by side where there is room."""
    each = "".join(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in drawn)
    return f'<div class="plots">{each}</div>'


def _words(yes: bool) -> str:
    return ' class="words"' if yes else ""
