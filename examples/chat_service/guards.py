"""What holds for every request: how much may be sent, what the browser may do, and how an error is told."""

from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crag_middleware import CRAGError

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Sent with every answer. No script, style, picture or connection but from this server, and no text that becomes markup."""


class Refusal(HTTPException):
    """A request that is not done.

    Args:
        status: Of HTTP.
        code: What the page finds its own words for.
        message: What was wrong and what to do, for a person.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(
            status, detail={"code": code, "message": message}, headers={"WWW-Authenticate": "Bearer"} if status == 401 else None
        )


class Guard:
    """Adds `HEADERS` to every answer, and refuses a body that is too large while it arrives, whatever its length was said to be.

    Args:
        app: What answers.
        most: Bytes of a body at most.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise Refusal(413, "too_large", f"That is more than {self._most // 2**20} MB. Cut it into smaller parts.")
            return message

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, counted, guarded)


def tell_errors(app: FastAPI) -> None:
    """Makes every error of the app `{"error": {"code", "message"}}`, without anything of what was sent."""

    @app.exception_handler(AnyHTTPException)
    async def refused(request: Request, error: AnyHTTPException) -> JSONResponse:
        known: Any = error.detail
        detail = known if isinstance(known, dict) else {"code": "refused", "message": f"{error.detail}."}
        return JSONResponse({"error": detail}, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        wrong = ", ".join(sorted({".".join(str(part) for part in found["loc"][1:] or found["loc"]) for found in error.errors()}))
        message = f"The request can't be read: {wrong or 'its body'} is missing, too long or of the wrong kind."
        return JSONResponse({"error": {"code": "malformed", "message": message}}, 422)

    @app.exception_handler(CRAGError)
    async def failed(request: Request, error: CRAGError) -> JSONResponse:
        return JSONResponse({"error": {"code": "unavailable", "message": f"{error}"}}, 503)
