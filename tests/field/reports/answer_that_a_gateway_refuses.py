"""Area: servers
Source: agentgateway/agentgateway#2838
Met: A gateway hands a server's question to the client and refuses the client's answer with 500 and a sentence that says why; the call then hangs until something ends it.
First try: fail: the call ends at once with effect `unknown`, which is right, but its error says only "HTTP 500 Internal Server Error" and leaves out the gateway's sentence, which
docs/errors.md promises and every other refusal has. So nobody learns why.
Verdict: Mended: the error of the call has the status and the words with which the answer was refused.
"""

import json
import threading

from servers import LegacyServer, event, reply

WHY = "failed to send message: unsupported message type"
QUESTION = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"sure": {"type": "boolean"}}}}


class Gateway(LegacyServer):
    """Refuses every answer of a client."""

    def __init__(self, status):
        self.status, self.over = status, threading.Event()
        super().__init__()

    def on(self, connection, method, path, headers, body):
        message = json.loads(body) if method == "POST" else {}
        if message.get("id") is not None and "method" not in message:
            return reply(connection, WHY, "text/plain", self.status)
        return super().on(connection, method, path, headers, body)

    def write(self, connection, out, message, headers):
        if message["method"] != "tools/call":
            return super().write(connection, out, message, headers)
        asked = event({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": QUESTION})
        connection.sendall(f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{asked}".encode())
        self.over.wait(30)
        return False


def test(field):
    failed = []
    able = {"elicitation": {"form": {}}}
    for status in ("500 Internal Server Error", "400 Bad Request", "403 Forbidden"):
        gateway = Gateway(status)
        raincheck = field.raincheck("--upstream", gateway.url, config='[tasks]\ngrace_window = "100ms"\n')
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, capabilities=able).answer(7)["result"]["taskId"]
        asks = raincheck.finished(task, capabilities=able)["result"]
        answers = {key: {"action": "accept", "content": {"sure": True}} for key in asks["inputRequests"]}
        raincheck.modern("tasks/update", {"taskId": task, "inputResponses": answers}, capabilities=able)
        end = raincheck.finished(task, seconds=8, capabilities=able)["result"]
        gateway.over.set()
        assert end["status"] == "failed" and end["error"]["data"]["io.raincheck/effect"] == "unknown", end
        if WHY not in end["error"]["message"]:
            failed.append(f"{status}: {end['error']['message']}")
    assert not failed, "\n".join(failed)
