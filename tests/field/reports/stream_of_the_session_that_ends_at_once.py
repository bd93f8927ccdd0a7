"""Area: servers
Source: CoinStatsHQ/coinstats-mcp#29
Met: A server without messages of its own answers GET with 200 and an event stream that ends at once, and clients open it again for ever; nearly all requests that the
server got were such ones (modelcontextprotocol/python-sdk#3257: the same from the side of the client).
First try: pass
Verdict: Pauses grow to 10 s while streams end at once, and what is no stream is not asked for again. A server that asks for a pause of 0 is asked about twice a second for
each stream, because it says so; calls are answered meanwhile.
"""

import threading
import time

from house import until
from servers import LegacyServer, reply

WATCH = 12
ALLOWED = 12
ASKED_FOR = 60


class Server(LegacyServer):
    capabilities = {"tools": {"listChanged": True}}

    def __init__(self, get):
        self.get, self.gets = get, 0
        super().__init__()

    def on(self, connection, method, path, headers, body):
        if method == "GET":
            self.gets += 1
            return self.get(connection)
        return super().on(connection, method, path, headers, body)


ANSWERS = {
    "an empty stream": lambda c: reply(c, b"", "text/event-stream"),
    "a stream that asks for a pause of 0": lambda c: reply(c, b"retry: 0\n\n", "text/event-stream"),
    "a page": lambda c: reply(c, b"<html>MCP server</html>", "text/html"),
    "JSON": lambda c: reply(c, {"status": "ok"}),
    "502": lambda c: reply(c, b"<html>Bad Gateway</html>", "text/html", "502 Bad Gateway"),
}


def test(field):
    watched = {}
    for name, get in ANSWERS.items():
        server = Server(get)
        raincheck = field.raincheck("--upstream", server.url)
        assert "result" in raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7), name
        listen = {"notifications": {"toolsListChanged": True}}
        threading.Thread(target=lambda r=raincheck: r.modern("subscriptions/listen", listen, id=9, seconds=WATCH + 2), daemon=True).start()
        until(f"{name}: GET", lambda s=server: s.gets)
        watched[name] = (server, server.gets)
    time.sleep(WATCH)
    counted = {name: server.gets - before for name, (server, before) in watched.items()}
    storms = {name: count for name, count in counted.items() if count > (ASKED_FOR if "pause of 0" in name else ALLOWED)}
    assert not storms, f"GETs in {WATCH} s: {counted}"
