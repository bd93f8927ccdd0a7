"""Area: servers
Source: envoyproxy/ai-gateway#1560
Met: A gateway keeps its routes inside the session id, which is long, encrypted and full of `+`, `/` and `=`, and gets back something that it cannot take apart.
First try: pass
Verdict: Session ids of 10 kB and of every visible character pass unchanged, for clients with sessions, for raincheck's own sessions, and from Redis.
"""

from servers import LegacyServer, reply

IDS = {
    "long": "eyJhbGciOiJkaXIi" + "A1b2+/=" * 1500,
    "signs": "".join(chr(code) for code in range(0x21, 0x7F)),
    "short": "0",
}


class Server(LegacyServer):
    def __init__(self, id):
        self.id = id
        super().__init__()

    def on(self, connection, method, path, headers, body):
        if b'"initialize"' not in body and b"server/discover" not in body and headers.get("mcp-session-id") != self.id:
            return reply(connection, "Session not found", "text/plain", "404 Not Found")
        return super().on(connection, method, path, headers, body)

    def write(self, connection, out, message, headers):
        super().write(connection, out, message, headers | ({"mcp-session-id": self.id} if "mcp-session-id" in headers else {}))


def test(field):
    redis = field.redis()
    for name, id in IDS.items():
        for store in ("memory:", f"redis://127.0.0.1:{redis}"):
            server = Server(id)
            config = '[tasks]\ngrace_window = "100ms"\n' + (f'[store]\nnamespace = "n{name}"\n' if store != "memory:" else "")
            raincheck = field.raincheck("--upstream", server.url, config=config, store=store)
            assert "result" in raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7), name
            task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}).answer(7)["result"]["taskId"]
            assert raincheck.finished(task)["result"]["status"] == "completed", name
            session = raincheck.session()
            assert "result" in session.call("slow"), name
            made = session.ask("tools/call", {"name": "slow", "arguments": {"s": 0.2}, "task": {}}, id=2).answer(2)
            assert "content" in session.ask("tasks/result", {"taskId": made["result"]["task"]["taskId"]}, id=3).answer(3)["result"], name
            raincheck.child.terminate()
