"""Area: servers
Source: Tr3kkR/Yuzu#2439
Met: A server answers a call with JSON and tells its progress on the session's own stream, where clients drop it or never look (mark3labs/mcp-go#732: questions that come only there).
First try: pass
Verdict: raincheck listens on the session's stream during calls of its own, and what belongs to a call reaches the client of that call and its task, with the client's token. On a
session of a legacy client it stays on that client's stream.
"""

import json
import threading
import time

from house import until
from servers import LegacyServer, event, reply

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: hello\n\n"


class Server(LegacyServer):
    """Answers with JSON, and tells everything else on the session's stream."""

    capabilities = {"tools": {}, "logging": {}}

    def __init__(self):
        self.streams = {}
        super().__init__()

    def on(self, connection, method, path, headers, body):
        if method == "GET":
            self.streams[headers["mcp-session-id"]] = connection
            connection.sendall(HEAD)
            time.sleep(20)
            return False
        return super().on(connection, method, path, headers, body)

    def tool(self, message, connection, headers):
        token = (message["params"].get("_meta") or {}).get("progressToken")
        time.sleep(0.4)
        # The stream and the call come at the same time.
        stream = self.streams.get(headers["mcp-session-id"])
        if stream and token is not None:
            for step in (1, 2, 3):
                params = {"progressToken": token, "progress": step, "total": 3, "message": f"step {step} of 3"}
                stream.sendall(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode())
        return super().tool(message, connection, headers)

    def write(self, connection, out, message, headers):
        reply(connection, json.dumps(out), headers=headers)


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "100ms"\npoll_hold = "0s"\n')
    # On a session of a legacy client, it comes on that client's stream.
    session, heard = raincheck.session(), []
    head = {**session.headers, "accept": "text/event-stream"}
    threading.Thread(target=lambda: heard.append(raincheck.http("GET", headers=head, seconds=2)), daemon=True).start()
    until("the stream", lambda: server.streams)
    call = {"name": "slow", "arguments": {"s": 0.3}, "_meta": {"progressToken": "mine"}}
    assert "result" in session.ask("tools/call", call).answer(1)
    until("the end of the stream", lambda: heard)
    assert [m["params"]["message"] for m in heard[0].messages() if m.get("method") == "notifications/progress"][-1] == "step 3 of 3", heard[0].text
    assert '"mine"' in heard[0].text
    # A modern client reads it in its call, and in its task.
    got = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.5}}, tasks=False, meta={"progressToken": "mine"})
    assert "result" in got.answer(7)
    task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 2}}, meta={"progressToken": "mine"}).answer(7)["result"]["taskId"]
    assert "step 3 of 3" in got.text and '"mine"' in got.text, got.text
    until("the progress in the task", lambda: "step 3 of 3" in raincheck.modern("tasks/get", {"taskId": task}).text, 2)
