"""Area: clients
Source: PrefectHQ/fastmcp#1664
Met: Clients that sent no Accept header, or only one of the two media types, were refused by HTTP 406 and could not connect.
First try: fail: a GET that accepts `text/*` was refused (406) in front of a program and of a modern server, though that range holds text/event-stream
Verdict: Mended: `text/*` accepts event streams, too.
"""

import contextlib
import socket

from servers import STDIO, LegacyServer, ModernServer

ACCEPT = [None, "*/*", "application/json", "text/event-stream", "application/*", "text/event-stream, application/json", "TEXT/EVENT-STREAM;q=0.5, APPLICATION/JSON"]


def status_of_get(session, accept):
    raincheck = session.raincheck
    head = {"host": f"127.0.0.1:{raincheck.port}", "accept": accept, **session.headers}
    lines = [f"{name}: {value}" for name, value in head.items() if value is not None]
    with socket.create_connection(("127.0.0.1", raincheck.port), 5) as connection, contextlib.suppress(OSError):
        connection.sendall("\r\n".join(["GET /mcp HTTP/1.1", *lines, "", ""]).encode())
        return int(connection.recv(64).split()[1])
    raise AssertionError(f"no answer to a GET with {accept}")


def test(field):
    program = field.write("server.py", STDIO)
    modern = ModernServer().url
    for upstream in (["--upstream", LegacyServer().url], ["--upstream", modern], ["--", "python3", program]):
        raincheck = field.raincheck(*upstream)
        for accept in ACCEPT:
            session = raincheck.session(headers={"accept": accept})
            assert session.first.status == 200, (accept, session.first.text)
            assert session.call("slow")["result"]["content"], accept
            call = {"name": "slow", "arguments": {}}
            assert raincheck.modern("tools/call", call, headers={"accept": accept}).answer(7)["result"]["content"], accept
        if upstream[0] == "--" or upstream[1] == modern:
            session = raincheck.session()
            assert status_of_get(session, "application/json") == 406
            for accept in ("text/event-stream", "*/*", "application/json, text/event-stream", "text/*"):
                assert status_of_get(session, accept) == 200, f"{upstream[0]}: a GET that accepts {accept}"
