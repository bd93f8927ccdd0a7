"""Area: servers
Source: nginx/nginx#1505
Met: A proxy of nginx keeps small events back until its buffer is full, unless the response says `X-Accel-Buffering: no`, so that clients time out while the events wait
(modelcontextprotocol/java-sdk#848).
First try: pass
Verdict: Every stream that raincheck writes itself says `X-Accel-Buffering: no` and `Cache-Control: no-cache`.
"""

import threading
import time

from house import until
from servers import LegacyServer, content, event

HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Server(LegacyServer):
    capabilities = {"tools": {"listChanged": True}}

    def write(self, connection, out, message, headers):
        if message["method"] != "tools/call":
            return super().write(connection, out, message, headers)
        token = (message["params"].get("_meta") or {}).get("progressToken", 0)
        step = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
        connection.sendall((HEAD + event(step)).encode())
        time.sleep(0.6)
        connection.sendall(event({"jsonrpc": "2.0", "id": message["id"], "result": content("done")}).encode())
        return False

    def tool(self, message, connection, headers):
        return {}


def test(field):
    raincheck = field.raincheck("--upstream", Server().url, config='[tasks]\ncompanion_tools = true\n')
    session = raincheck.session()
    got = {}

    def later(name, ask):
        threading.Thread(target=lambda: got.__setitem__(name, ask()), daemon=True).start()

    call = {"name": "slow", "arguments": {}, "_meta": {"progressToken": 1}}
    later("a subscription", lambda: raincheck.modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=9, seconds=1.5))
    later("a modern call", lambda: raincheck.modern("tools/call", call, tasks=False, meta={"progressToken": 1}))
    later("a legacy call", lambda: session.ask("tools/call", call))
    later("a stream of a session", lambda: raincheck.http("GET", headers={**session.headers, "accept": "text/event-stream"}, seconds=1.5))
    until("all answers", lambda: len(got) == 4)
    for name, answer in got.items():
        assert answer.headers["content-type"].startswith("text/event-stream"), (name, answer.headers)
        assert answer.headers.get("x-accel-buffering") == "no", (name, answer.headers)
        assert "no-cache" in answer.headers.get("cache-control", ""), (name, answer.headers)
