"""`crag web`: look at a web search."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from crag_middleware.cli.shared import AsJson, console, name_own_modules, names, print_json

Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--provider",
        "-p",
        metavar="NAME",
        help="tavily, bocha, or one's own as package.module:attribute; several are asked in order. Without any nothing is sent.",
        show_default=False,
    ),
]


def web(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="As a user would ask it.", show_default=False)],
    provider: Providers = None,
    allow: Annotated[
        str, typer.Option(metavar="LIST", help="Only results from these domains, such as example.org,gov.uk.", show_default="any")
    ] = "",
    deny: Annotated[str | None, typer.Option(metavar="LIST", help="No results from these.", show_default="the policy's own list")] = None,
    protect: Annotated[str, typer.Option(metavar="LIST", help="Words that never leave.", show_default="none")] = "",
    freshness: Annotated[str, typer.Option(metavar="AGE", help="any, day, week, month or year.")] = "any",
    results: Annotated[int, typer.Option(metavar="N", min=1, max=20, help="Results asked for.")] = 3,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, max=600, help="For all providers together.")] = 10.0,
    agent_id: Annotated[str, typer.Option("--agent-id", "-a", "--tenant", metavar="ID", help="The tenant for whom.")] = "crag-web",
    as_json: AsJson = False,
) -> None:
    """Show what would be sent to the web for a question, and, with a provider, what comes, what is dropped and why."""
    from crag_middleware.named import named_web_search
    from crag_middleware.web_policy import WebPolicy
    from crag_middleware.web_probe import probe
    from crag_middleware.web_show import show_probe

    name_own_modules()
    chosen: dict[str, Any] = {"allow_domains": names(allow), "protected_terms": names(protect), "freshness": freshness}
    policy = WebPolicy(**chosen) if deny is None else WebPolicy(**chosen, deny_domains=names(deny))
    search = named_web_search(provider) if provider else None
    found = probe(question, search, agent_id=agent_id, policy=policy, limit=results, timeout_s=timeout)
    if as_json:
        print_json({"sent": search is not None, **asdict(found)})
    else:
        show_probe(found, console(), sent=search is not None)
    if found.error:
        raise typer.Exit(1)
