"""Area: clients
Source: modelcontextprotocol/go-sdk#285
Met: A tool asked the client's model in the middle of its call; over HTTP the question reached the client only when the time for it was over, because it waited for another stream.
First try: pass
Verdict: A question comes on the stream of its call, at once, with and without a GET stream, two questions at a time find their own answers in whatever order, and a client of 2026-07-28
    gets them as inputs of its task.
"""

import json
import socket
import threading
import time

from servers import LegacyServer, ModernServer, content, event


def sample(text):
    return {"method": "sampling/createMessage", "params": {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 9}}


class Legacy(LegacyServer):
    version = "2025-11-25"

    def __init__(self):
        self.answers, self.came = {}, threading.Condition()
        super().__init__()

    def on(self, connection, method, path, headers, body):
        message = json.loads(body) if method == "POST" else {}
        if "result" in message:
            with self.came:
                self.answers[message["id"]] = message["result"]["content"]["text"]
                self.came.notify_all()
        return super().on(connection, method, path, headers, body)

    def tool(self, message, connection, headers):
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        ids = [f"{message['id']}-{n}" for n in (1, 2)]
        for id in ids:
            connection.sendall(event({"jsonrpc": "2.0", "id": id, **sample(id[-1])}).encode())
        with self.came:
            self.came.wait_for(lambda: all(id in self.answers for id in ids), 10)
        return content(json.dumps([self.answers.get(id) for id in ids]))

    def write(self, connection, out, message, headers):
        if message["method"] != "tools/call":
            return super().write(connection, out, message, headers)
        connection.sendall(event(out).encode())
        return False


class Modern(ModernServer):
    def tool(self, message, connection, headers):
        answers = message["params"].get("inputResponses")
        if not answers:
            return {"resultType": "input_required", "inputRequests": {"one": sample("1"), "two": sample("2")}, "requestState": "s"}
        return content(json.dumps([answers[key]["content"]["text"] for key in ("one", "two")]))


def said(question):
    text = question["params"]["messages"][0]["content"]["text"]
    return {"role": "assistant", "content": {"type": "text", "text": f"answer {text}"}, "model": "m"}


def call_on_session(session, with_stream):
    """Calls, and answers the second question first."""
    raincheck = session.raincheck
    if with_stream:
        head = {"host": f"127.0.0.1:{raincheck.port}", "accept": "text/event-stream", **session.headers}
        stream = socket.create_connection(("127.0.0.1", raincheck.port), 5)
        stream.sendall("\r\n".join(["GET /mcp HTTP/1.1", *[f"{name}: {value}" for name, value in head.items()], "", ""]).encode())
    data = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}}).encode()
    head = {"host": f"127.0.0.1:{raincheck.port}", "content-type": "application/json", "accept": "application/json, text/event-stream", "content-length": len(data), "connection": "close", **session.headers}
    begun, raw, questions = time.monotonic(), b"", []
    with socket.create_connection(("127.0.0.1", raincheck.port), 15) as connection:
        connection.sendall("\r\n".join(["POST /mcp HTTP/1.1", *[f"{name}: {value}" for name, value in head.items()], "", ""]).encode() + data)
        while read := connection.recv(65536):
            raw += read
            for line in raw.split(b"\n"):
                if line.startswith(b"data: {") and b"sampling/createMessage" in line and line.rstrip().endswith(b"}"):
                    question = json.loads(line[6:])
                    if question not in questions:
                        questions.append(question)
                        if len(questions) == 2:
                            assert time.monotonic() - begun < 3
                            for one in reversed(questions):
                                session.say({"jsonrpc": "2.0", "id": one["id"], "result": said(one)})
    return raw


def test(field):
    for server in (Legacy(), Modern()):
        raincheck, pipe = field.raincheck("--upstream", server.url), field.stdio("--upstream", server.url)
        capabilities = {"sampling": {}}
        for with_stream in (False, True):
            raw = call_on_session(raincheck.session(capabilities=capabilities), with_stream)
            assert b'\\"answer 1\\", \\"answer 2\\"' in raw, raw[-600:]
        pipe.hello(capabilities=capabilities)
        pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}})
        for question in reversed([pipe.message(), pipe.message()]):
            pipe.say({"jsonrpc": "2.0", "id": question["id"], "result": said(question)})
        assert '"answer 1", "answer 2"' in pipe.answer(1)["result"]["content"][0]["text"]
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, capabilities=capabilities).answer(7)["result"]["taskId"]
        # A poll may come between the two questions of a legacy server.
        answered = set()
        while (state := raincheck.finished(task, capabilities=capabilities)["result"])["status"] == "input_required":
            fresh = {key: said(question) for key, question in state["inputRequests"].items() if key not in answered}
            if fresh:
                raincheck.modern("tasks/update", {"taskId": task, "inputResponses": fresh}, capabilities=capabilities)
                answered |= fresh.keys()
        assert '"answer 1", "answer 2"' in state["result"]["content"][0]["text"], state
