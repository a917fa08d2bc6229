"""The chatbot's back end: routes, and what stands before each of them. The tenant comes from the bearer token only."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from chat_service.access import Tenant, Threads, Tokens
from chat_service.documents import MAX_UPLOAD, Documents, check_name
from chat_service.guards import Guard, Refusal, tell_errors
from chat_service.turns import conversation, failure, turn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.sse import EventSourceResponse, ServerSentEvent
from fastapi.staticfiles import StaticFiles
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import BaseModel, StringConstraints

from crag_middleware import CRAGError
from crag_middleware.knowledge.ingest import Ingested
from crag_middleware.knowledge.knowledge import Knowledge

PAGE = Path(__file__).with_name("page")
MAX_QUESTION = 4000
"""Characters of a question."""

MakeAgent = Callable[[BaseCheckpointSaver[str]], Any]


@dataclass
class Service:
    """What the routes work with, while the server runs.

    Attributes:
        agent: Answers.
        tokens: Say who asks.
        threads: Say whose a conversation is.
        documents: What can be asked about.
        busy: Conversations in which a turn is being answered.
    """

    agent: Any
    tokens: Tokens
    threads: Threads
    documents: Documents
    busy: set[str]


class Question(BaseModel):
    """What is sent to ask."""

    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUESTION)]


def create_app(make_agent: MakeAgent, knowledge: Knowledge, tokens: Tokens, checkpoints: Path) -> FastAPI:
    """The service.

    Args:
        make_agent: Makes the agent, given where it keeps its conversations; its context is `turns.Caller`.
        knowledge: What it is grounded in.
        tokens: Who may ask.
        checkpoints: The SQLite file for conversations; it holds passages of every tenant, so keep it as safe as the knowledge.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncSqliteSaver.from_conn_string(str(checkpoints)) as saver:
            await saver.setup()
            threads, documents = await Threads.open(checkpoints), Documents(knowledge)
            app.state.service = Service(make_agent(saver), tokens, threads, documents, set())
            try:
                yield
            finally:
                documents.close()
                await threads.close()

    app = FastAPI(title="Chat service", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, most=MAX_UPLOAD)
    tell_errors(app)
    app.include_router(router)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


def the_service(request: Request) -> Service:
    """What the routes work with."""
    service: Service = request.app.state.service
    return service


Parts = Annotated[Service, Depends(the_service)]


def who_asks(service: Parts, given: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]) -> Tenant:
    """The tenant of the bearer token."""
    tenant = service.tokens.tenant(given.credentials) if given else None
    if tenant is None:
        raise Refusal(401, "unauthorized", "This token is not known, or there is none. Sign in with a token of this server.")
    return tenant


Asking = Annotated[Tenant, Depends(who_asks)]


async def own_thread(thread: str, service: Parts, tenant: Asking) -> str:
    """The conversation, if it is the tenant's."""
    if not await service.threads.belongs(thread, tenant):
        raise Refusal(404, "no_thread", "There is no such conversation. Begin a new one.")
    return thread


Thread = Annotated[str, Depends(own_thread)]


async def free_thread(service: Parts, thread: Thread) -> AsyncIterator[str]:
    """The conversation, kept to one turn until the answer is out or nobody waits for it any more."""
    if thread in service.busy:
        raise Refusal(409, "busy", "The last question of this conversation is still being answered. Wait for it, or stop it.")
    service.busy.add(thread)
    try:
        yield thread
    finally:
        service.busy.discard(thread)


async def uploaded(name: str, request: Request, tenant: Asking) -> bytes:
    """The content of a file that can be kept; who asks is known before anything is read."""
    check_name(name)
    if not (content := await request.body()):
        raise Refusal(422, "empty", "This file is empty.")
    return content


router = APIRouter(prefix="/api")


@router.get("/me")
async def me(tenant: Asking) -> dict[str, Any]:
    """Who the token stands for, as far as the page may know."""
    shown = asdict(tenant)
    del shown["agent_id"]
    return shown


@router.post("/threads", status_code=201)
async def begin(service: Parts, tenant: Asking) -> dict[str, str]:
    """Begins a conversation."""
    return {"thread": await service.threads.begin(tenant)}


@router.get("/threads/{thread}")
async def read(service: Parts, thread: Thread) -> dict[str, Any]:
    """What was said in a conversation."""
    return await conversation(service.agent, thread)


@router.post("/threads/{thread}/turns", response_class=EventSourceResponse)
async def ask(
    asked: Question, service: Parts, tenant: Asking, thread: Annotated[str, Depends(free_thread)]
) -> AsyncIterator[ServerSentEvent]:
    """Asks in a conversation. A turn ends when nobody listens any more."""
    async for event in turn(service.agent, tenant, thread, asked.question):
        yield event


@router.get("/documents")
async def documents(service: Parts, tenant: Asking) -> dict[str, Any]:
    """The tenant's documents."""
    return {"documents": await service.documents.list(tenant)}


@router.put("/documents/{name}", response_class=EventSourceResponse)
async def upload(name: str, service: Parts, tenant: Asking, content: Annotated[bytes, Depends(uploaded)]) -> AsyncIterator[ServerSentEvent]:
    """Takes a file, the body of the request, in place of the one of the same name: `progress` again and again, then `done` or `error`."""
    try:
        async for told in service.documents.ingest(tenant, name, content):
            if not isinstance(told, Ingested):
                yield ServerSentEvent(event="progress", data={"chunks": told.embedded})
            elif told.failed or told.skipped:
                why = (*told.failed, *told.skipped)[0].reason
                yield failure("unreadable", f"{name}: {why}.")
            else:
                yield ServerSentEvent(event="done", data={"source": name, "chunks": told.chunks})
    except CRAGError as error:
        yield failure("unavailable", f"{error}")


@router.delete("/documents/{source:path}", status_code=204)
async def delete(source: str, service: Parts, tenant: Asking) -> Response:
    """Deletes a document of the tenant's."""
    if not source or not await service.documents.delete(tenant, source):
        raise Refusal(404, "no_document", "There is no such document. It may be deleted already.")
    return Response(status_code=204)
