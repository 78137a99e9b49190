"""The HTTP server of the explorer, for one user on this machine.

Every path starts with a secret that is new for each server, as the page's own address does. The
server listens on loopback only, and answers neither requests for other hosts nor other sites.
"""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from glassformer.core.errors import GlassError
from glassformer.core.i18n import language, localize
from glassformer.serve.envelope import pack
from glassformer.serve.handlers import HANDLERS
from glassformer.serve.session import Session

HOST, DEFAULT_PORT = "127.0.0.1", 8765
PAGE = Path(__file__).parent / "page"
MAX_BODY = 12_000_000
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LANGUAGES = ("en", "zh")


def make_app(session: Session, token: str, port: int) -> FastAPI:
    """The application: GET /TOKEN/ is the page, POST /TOKEN/api/HANDLER runs a handler."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    files = {file.name: file.read_bytes() for file in PAGE.iterdir() if file.suffix in TYPES}
    hosts = {f"{name}:{port}" for name in (HOST, "localhost", "[::1]")}

    @app.middleware("http")
    async def check_request(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = reject(request, hosts) or await call_next(request)
        response.headers.update(HEADERS)
        return response

    @app.get(f"/{token}/{{name:path}}")
    def get_file(name: str) -> Response:
        name = name or "index.html"
        if name not in files:
            return fail(f"there is no page {name!r}", 404)
        return Response(files[name], media_type=TYPES[Path(name).suffix])

    @app.post(f"/{token}/api/{{name}}")
    async def handle(name: str, request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(reply, session, name, body)

    return app


def reject(request: Request, hosts: set[str]) -> Response | None:
    """An error for a request that names another host, comes from another site, or is too large."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if host not in hosts:
        return fail(f"this server answers only at {sorted(hosts)[0]}, not as {host!r}", 403)
    if origin is not None and origin.removeprefix("http://") not in hosts:
        return fail(f"requests from {origin!r} are not answered", 403)
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BODY:
        return fail(f"the request is larger than {MAX_BODY // 10**6} MB", 413)
    if request.method == "POST" and "content-length" not in request.headers:
        return fail("the request has no length", 411)
    return None


def reply(session: Session, name: str, body: bytes) -> Response:
    """Run the handler with this name; an error that a user can fix has the status 400."""
    try:
        request = parse_body(body)
        if not isinstance(request, dict):
            raise GlassError("a request must be a JSON object")
        if name not in HANDLERS:
            raise GlassError(f"unknown request {name!r}")
        if request.get("lang") in LANGUAGES:
            language.set(request["lang"])
        content = pack(HANDLERS[name](session, request))
    except GlassError as error:
        return fail(localize(str(error)), 400)
    except Exception as error:  # the page shows it, and the server goes on
        print(f"error in {name}: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
        return fail(f"{type(error).__name__}: {error}", 500)
    return Response(content, media_type="application/octet-stream")


def parse_body(body: bytes) -> Any:
    try:
        return json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise GlassError(f"the request is not JSON: {error}") from None


def fail(message: str, status: int) -> Response:
    content = json.dumps({"error": message}, ensure_ascii=False)
    return Response(content, status, media_type="application/json")


def bind(port: int | None) -> socket.socket:
    """A socket on loopback: at this port, or at the default one or any that is free."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for candidate in [port] if port is not None else [DEFAULT_PORT, 0]:
        try:
            server.bind((HOST, candidate))
        except OSError as error:
            if port is not None:
                server.close()
                raise GlassError(
                    f"port {port} is not available ({error.strerror}): choose another --port, or "
                    "leave it out"
                ) from None
        else:
            server.listen()  # a browser that is faster than the server waits for it
            return server
    raise GlassError("no port is available")


def serve(session: Session, server: socket.socket, announce: Callable[[str], Any]) -> None:
    """Serve the page until Ctrl-C; `announce` gets its address."""
    token = secrets.token_urlsafe(24)
    announce(f"http://{HOST}:{server.getsockname()[1]}/{token}/")
    make_server(session, token, server).run(sockets=[server])


def make_server(session: Session, token: str, server: socket.socket) -> uvicorn.Server:
    """A server that stops within a second, whatever a page is still waiting for."""
    settings = uvicorn.Config(
        make_app(session, token, server.getsockname()[1]),
        log_level="error",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(settings)
