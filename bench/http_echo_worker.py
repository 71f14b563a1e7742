"""A bare Starlette echo: the same body, read and validated the same way, under the same server; no engine behind it.

Prints its port on one line. Started by bench/http.py, for as long as its stdin stays open.
"""

from __future__ import annotations

import socket
import sys
import threading

import orjson
import uvicorn
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palyra.daemon.call_models import CallOrBatch
from palyra.protocol.parse import parse_value

BODY: TypeAdapter[object] = TypeAdapter(CallOrBatch)


async def echo(request: Request) -> Response:
    value = parse_value(await request.body(), max_depth=34)
    body = BODY.validate_python(value, strict=True)
    return Response(orjson.dumps({"output": body.input}), media_type="application/json")  # type: ignore[attr-defined]


def main() -> None:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    print(sock.getsockname()[1], flush=True)
    config = uvicorn.Config(
        Starlette(routes=[Route("/v1/calls", echo, methods=["POST"])]),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=600,
        date_header=False,
    )
    server = uvicorn.Server(config)

    def until_closed() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=until_closed, daemon=True).start()
    server.run(sockets=[sock])


if __name__ == "__main__":
    main()
