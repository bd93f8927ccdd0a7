"""Area: security
Source: tinyproxy/tinyproxy#609
Met: A proxy took one of two lengths of a request and passed both on, so that the server behind it read a second request out of the first one's body.
First try: pass
Verdict: What two readers may read differently is refused with 400; a body in chunks is read whole and sent with one length, and the server gets one request for one.
"""

import contextlib
import socket

from servers import LegacyServer

BODY = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
HIDDEN = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n" + BODY


def ask(port, lines, body):
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(head.encode() + lines + b"\r\n" + body)
        read = b""
        with contextlib.suppress(OSError):
            while more := connection.recv(65536):
                read += more
    return [int(part.split()[0]) for part in read.split(b"HTTP/1.1 ")[1:]]


def test(field):
    server = LegacyServer()
    raincheck = field.raincheck("--upstream", server.url)
    length = b"Content-Length: %d\r\n" % len(BODY)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    refused = {
        "two lengths": (b"Content-Length: 0\r\n" + length, BODY),
        "a list of lengths": (b"Content-Length: 40, 40\r\n", BODY),
        "a space before the colon": (length + b"Transfer-Encoding : chunked\r\n", BODY),
        "another coding": (b"Transfer-Encoding: xchunked\r\n" + length, BODY),
        "two codings": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n" + length, chunked),
        "a sign": (b"Content-Length: +40\r\n", BODY),
        "a folded line": (b"X-A: b\r\n Transfer-Encoding: chunked\r\n" + length, BODY),
        "a bare line feed": (b"X-A: b\nTransfer-Encoding: chunked\r\n" + length, BODY),
        "a zero": (b"X-A: a\0b\r\n" + length, BODY),
        "a chunk of too many digits": (b"Transfer-Encoding: chunked\r\n", b"fffffffffffffffff\r\n"),
    }
    raincheck.session()
    for name, (lines, body) in refused.items():
        before = len(server.seen)
        assert ask(raincheck.port, lines, body) == [400], name
        assert len(server.seen) == before, name
    # Both a length and chunks: RFC 9112 allows to refuse it, or to take the chunks and end the connection.
    before = len(server.seen)
    statuses = ask(raincheck.port, b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", chunked + HIDDEN)
    assert len(statuses) == 1 and len(server.seen) - before <= 1, statuses
    for method, _, headers in server.seen[before:]:
        assert method == "ping" and not ("content-length" in headers and "transfer-encoding" in headers), headers
    # Fields behind the last chunk are no headers.
    trailer = b"%x\r\n%s\r\n0\r\nAuthorization: Bearer evil\r\nMcp-Session-Id: evil\r\n\r\n" % (len(BODY), BODY)
    ask(raincheck.port, b"Transfer-Encoding: chunked\r\n", trailer)
    assert "authorization" not in server.seen[-1][2] and server.seen[-1][2].get("mcp-session-id") != "evil"
