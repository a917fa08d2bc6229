"""`crag doctor`: what keeps answers from being right here, and how to mend it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from langchain_core.embeddings import Embeddings

from crag_middleware.adapters.inner_model import MODEL_VARIABLE, resolve_model
from crag_middleware.cli.answering import EvaluatorChoice
from crag_middleware.cli.collections import DEFAULT_COLLECTION, DEFAULT_URI, Collection, Database, EmbeddingsName, Token, Uri, embeddings_of
from crag_middleware.cli.measuring import BaseUrl, Model
from crag_middleware.cli.shared import AsJson, console, name_own_modules, print_json
from crag_middleware.cli.web import Providers

if TYPE_CHECKING:
    from crag_middleware.doctor import Finding

_SIGNS = {"ok": "ok", "note": "note", "wrong": "WRONG"}


def doctor(
    agent_id: Annotated[
        str | None,
        typer.Option(
            "--agent-id", "-a", metavar="ID", help="The tenant whose documents are looked at for their language.", show_default="nobody"
        ),
    ] = None,
    uri: Uri = DEFAULT_URI,
    token: Token = None,
    database: Database = None,
    collection: Collection = DEFAULT_COLLECTION,
    embeddings: EmbeddingsName = None,
    evaluator: EvaluatorChoice = None,
    model: Model = None,
    base_url: BaseUrl = None,
    provider: Providers = None,
    as_json: AsJson = False,
) -> None:
    """Check packages, keys, the collection and a search, and say how to mend what is wrong. Nothing is changed or sent. Exit code 1 if anything is wrong."""
    from crag_middleware import doctor as looks

    def named(remembered: str) -> Embeddings:
        return embeddings_of(collection, remembered, embeddings)

    name_own_modules()
    place = looks.Place(uri=uri, collection=collection, token=token, database=database)
    found = [*looks.packages(), *_parts(evaluator, model, base_url, provider or ()), *looks.collection(place, named, agent_id=agent_id)]
    wrong = sum(one.state == "wrong" for one in found)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        for one in found:
            console().print(f"{_SIGNS[one.state]:<6}{one.check}: {one.found}", soft_wrap=True)
            if one.mend and one.state != "ok":
                console().print(f"      -> {one.mend}", soft_wrap=True)
        console().print(f"{wrong} of {len(found)} checks found something wrong" if wrong else "nothing is wrong")
    if wrong:
        raise typer.Exit(1)


def _parts(evaluator: str | None, model: str | None, base_url: str | None, providers: Sequence[str]) -> Iterator["Finding"]:
    """Whether what is named can be built, and which of the usual parts could be."""
    from crag_middleware.doctor import built
    from crag_middleware.named import WEB_SEARCHES, named_evaluator, named_web_search

    if base_url or model:
        yield built(
            "chat model",
            lambda: named_evaluator("chat", model=model, base_url=base_url),
            wanted=True,
            mend="set its key, or name another one",
        )
    else:
        mend = f"set DEEPSEEK_API_KEY, or name another model in {MODEL_VARIABLE}; without one `crag ask` quotes and grades by embeddings"
        yield built("chat model", lambda: resolve_model(None), wanted=evaluator in ("chat", "token", "cascade"), mend=mend)
    if evaluator and evaluator not in ("chat", "token", "cascade"):
        yield built("evaluator", lambda: named_evaluator(evaluator), wanted=True, mend="install what it needs, or name another one")
    for name in providers or WEB_SEARCHES:
        mend = f"set {name.upper()}_API_KEY, if you want that web search" if name in WEB_SEARCHES else "see the reason"
        yield built(f"web search {name}", lambda name=name: named_web_search([name]), wanted=bool(providers), mend=mend)  # type: ignore[misc]  # a lambda's default has no place for its type
