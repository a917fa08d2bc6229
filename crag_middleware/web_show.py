"""What a web search came to, in the terminal."""

from rich.console import Console
from rich.table import Table

from crag_middleware.web_probe import Probe


def show_probe(found: Probe, console: Console, *, sent: bool) -> None:
    """Prints what left or would, who was asked, what was kept with its scores, and what was dropped and why."""
    if not found.query.text:
        console.print("nothing of this question may leave for the web")
        return
    console.print(f"{'sent' if sent else 'would be sent'}: {found.query.text}", soft_wrap=True)
    if found.query.include_domains:
        console.print(f"only from: {', '.join(found.query.include_domains)}", soft_wrap=True)
    if not sent:
        console.print("nothing was sent: name a --provider")
        return
    for attempt in found.attempts:
        outcome = attempt.reason or f"{attempt.results} results"
        console.print(f"{attempt.provider}: {outcome}, {attempt.requests} requests, {attempt.ms:.0f} ms", soft_wrap=True)
    if found.error:
        console.print(f"no results: {found.error}")
        return
    table = Table("", "source", "evidence", "orders", "title", "text")
    for passage in found.kept:
        start = " ".join(passage.text.split())
        table.add_row(
            str(passage.rank),
            passage.url or passage.source,
            f"{passage.evidence_score or 0:.2f}",
            f"{passage.injection_score:.2f}",
            passage.title,
            start[:160],
        )
    for one in found.dropped:
        table.add_row("-", one.url, "", "", one.title, f"dropped: {one.reason}")
    console.print(table)
