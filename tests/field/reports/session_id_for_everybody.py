"""Area: servers
Source: IBM/mcp-context-forge#5484
Met: A gateway that ties sessions to its clients turned requests away in front of a server that keeps no sessions.
First try: pass
Verdict: Where clients must say who they are, an id that the server gives to several callers belongs to none of them, and each goes on.
"""

import hashlib

from servers import LegacyServer


class Server(LegacyServer):
    """Gives every client the same id."""

    def write(self, connection, out, message, headers):
        if message["method"] == "initialize":
            headers = {"mcp-session-id": "the-one-session"}
        super().write(connection, out, message, headers)


def test(field):
    server = Server()
    tokens = {name: {"authorization": f"Bearer {name}-0123456789"} for name in ("alice", "bob", "carol")}
    lines = [f"{name}: {hashlib.sha256(f'{name}-0123456789'.encode()).hexdigest()}\n" for name in tokens]
    settings = f'[auth]\ntokens_file = "{field.write("tokens", "".join(lines), 0o600)}"\n'
    raincheck = field.raincheck("--upstream", server.url, config=settings)
    sessions = [raincheck.session(headers=tokens[name]) for name in tokens]
    for session in sessions * 2:
        assert session.headers["mcp-session-id"] == "the-one-session"
        assert "result" in session.call("slow")
