"""Area: clients
Source: modelcontextprotocol/go-sdk#793
Met: Messages with a file or an image in them failed at a fixed limit of 1 MB that only one party had, and that nothing had announced.
First try: fail: a sampling answer of 1.5 MB was accepted on a session in front of a modern server (202) and dropped, so that the call hung; in `tasks/update` it was refused with "inputResponses must be an object"
Verdict: Mended: on a session in front of a modern server, an answer of any size that a request may have reaches the call, on every replica; `tasks/update` says that more than 1 MiB is too large.
"""

import json
import threading

from house import until
from servers import LegacyServer, ModernServer, content, event

SAMPLE = {"method": "sampling/createMessage", "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "draw"}}], "maxTokens": 9}}
IMAGE = {"role": "assistant", "content": {"type": "image", "data": "A" * 1_500_000, "mimeType": "image/png"}, "model": "m"}


class Modern(ModernServer):
    """Asks the client's model for an image, and says how large it is."""

    def tool(self, message, connection, headers):
        answers = message["params"].get("inputResponses")
        if not answers:
            return {"resultType": "input_required", "inputRequests": {"image": SAMPLE}, "requestState": "s"}
        return content(f"{len(answers['image']['content']['data'])}")


class Legacy(LegacyServer):
    def __init__(self):
        self.answered, self.answer = threading.Event(), None
        super().__init__()

    def on(self, connection, method, path, headers, body):
        message = json.loads(body) if method == "POST" else {}
        if "result" in message:
            self.answer = message["result"]
            self.answered.set()
        return super().on(connection, method, path, headers, body)

    def tool(self, message, connection, headers):
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        connection.sendall(event({"jsonrpc": "2.0", "id": 77, **SAMPLE}).encode())
        self.answered.wait(10)
        return content(f"{len(self.answer['content']['data'])}" if self.answer else "no answer")

    def write(self, connection, out, message, headers):
        if message["method"] != "tools/call":
            return super().write(connection, out, message, headers)
        connection.sendall(event(out).encode())
        return False


def is_told(text):
    """A refusal that says what is wrong."""
    return any(word in text.lower() for word in ("large", "size", "long", "bytes"))


def test(field):
    wrong = []
    for server in (Legacy, Modern):
        raincheck = field.raincheck("--upstream", server().url)
        capabilities = {"sampling": {}}
        # On a session.
        pipe = field.stdio("--upstream", server().url)
        pipe.hello(capabilities=capabilities)
        pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}})
        question = pipe.message()
        pipe.say({"jsonrpc": "2.0", "id": question["id"], "result": IMAGE})
        try:
            answer = json.dumps(pipe.answer(1, 5))
            if "1500000" not in answer and not is_told(answer):
                wrong.append(f"{server.__name__}, session: {answer[:200]}")
        except AssertionError:
            wrong.append(f"{server.__name__}, session: the answer was lost, and the call waits on")
        # With a task.
        call = {"name": "slow", "arguments": {}}
        task = raincheck.modern("tools/call", call, capabilities=capabilities).answer(7)["result"]["taskId"]
        asked = raincheck.finished(task, capabilities=capabilities)["result"]["inputRequests"]
        update = raincheck.modern("tasks/update", {"taskId": task, "inputResponses": dict.fromkeys(asked, IMAGE)}, capabilities=capabilities).answer(7)
        if "error" in update:
            if not is_told(update["error"]["message"]):
                wrong.append(f"{server.__name__}, task: {update}")
            continue
        ended = until("the task ends", lambda: (now := raincheck.modern("tasks/get", {"taskId": task}).answer(7)["result"])["status"] == "completed" and now)
        assert "1500000" in json.dumps(ended)
    assert not wrong, "\n".join(wrong)
