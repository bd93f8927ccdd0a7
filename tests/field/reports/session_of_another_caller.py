"""Area: security
Source: agentic-community/mcp-gateway-registry#1357
Met: A gateway checked who calls and that a session exists, but not whose session it is: any client with a good token of its own could use, listen to and end another client's session by its id.
First try: fail: with `auth.tokens_file` in front of a legacy server over Streamable HTTP, a client with its own token called a tool on another client's session, read the server's messages from its GET stream, cancelled its call and ended it; a wrapped program's sessions are bound to their caller.
Verdict: Mended: where clients must say who they are, a server's session is its owner's on every replica, and others get 404.
"""

import hashlib
import time

from servers import STDIO, LegacyServer, event


class Server(LegacyServer):
    """A server that trusts what is in front of it. Its GET stream has the session's own messages."""

    def on(self, connection, method, path, headers, body):
        if method == "GET":
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            note = {"level": "info", "data": "for alice only"}
            connection.sendall(event({"jsonrpc": "2.0", "method": "notifications/message", "params": note}).encode())
            time.sleep(0.5)
            return False
        return super().on(connection, method, path, headers, body)

    def result(self, message, connection, headers):
        # Each session has a state of its own.
        if message["method"] == "tools/call":
            return {"content": [{"type": "text", "text": f"state of {headers['mcp-session-id']}"}]}
        return super().result(message, connection, headers)


def test(field):
    server = Server()
    tokens = {name: {"authorization": f"Bearer {name}-0123456789"} for name in ("alice", "bob")}
    lines = [f"{name}: {hashlib.sha256(f'{name}-0123456789'.encode()).hexdigest()}\n" for name in tokens]
    settings = f'[auth]\ntokens_file = "{field.write("tokens", "".join(lines), 0o600)}"\n'
    wrapped = field.raincheck("--", "python3", field.write("program.py", STDIO), config=settings)
    direct = field.raincheck("--upstream", server.url, config=settings)
    for raincheck in (wrapped, direct):
        alice = raincheck.session(headers=tokens["alice"])
        assert alice.call("slow")["result"]["content"]
        before = len(server.seen)
        # Bob knows the id: from a log, a trace, or because the server counts.
        stolen = {"mcp-session-id": alice.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25", **tokens["bob"]}
        call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "slow", "arguments": {}}}
        answers = [raincheck.http("POST", call, stolen)]
        answers.append(raincheck.http("GET", None, {**stolen, "accept": "text/event-stream"}, seconds=2))
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        answers.append(raincheck.http("POST", cancel, stolen))
        answers.append(raincheck.http("DELETE", None, stolen))
        reached = [method for method, _, headers in server.seen[before:] if headers.get("mcp-session-id") == stolen["mcp-session-id"]]
        assert all("alice" not in answer.text and "state of" not in answer.text for answer in answers), [answer.text for answer in answers]
        assert not reached, f"bob reached alice's session: {reached}"
        assert [answer.status for answer in answers] == [404] * 4, [answer.status for answer in answers]
        # And the session is hers still.
        assert alice.call("slow")["result"]["content"]
