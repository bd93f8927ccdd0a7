"""Area: servers
Source: PrefectHQ/fastmcp#3334
Met: A client that said `sampling.tools` though it had none broke the handshake with servers that do not know the member, so what a client declares must reach a server as it
is and nothing beside it; and what comes between drops tools and results of tools from the questions (docker/docker-agent#2998 does the loop).
First try: pass
Verdict: A legacy server hears of sampling exactly what the client declared. Its questions with tools, and answers with uses and results of tools, pass to the byte in both
directions, several in one call.
"""

import json
import queue

from servers import LegacyServer, content, event

USE = {"role": "assistant", "model": "m", "stopReason": "toolUse", "content": [{"type": "tool_use", "id": "u1", "name": "weather", "input": {"n": 1.50}}]}
END = {"role": "assistant", "model": "m", "stopReason": "endTurn", "content": {"type": "text", "text": "22 degrees"}}
HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Server(LegacyServer):
    version = "2025-11-25"

    def __init__(self):
        self.declared, self.answers = [], queue.Queue()
        super().__init__()

    def on(self, connection, method, path, headers, body):
        message = json.loads(body) if method == "POST" else {}
        if message.get("method") == "initialize":
            self.declared.append(message["params"]["capabilities"])
        elif "method" not in message and "id" in message:
            self.answers.put(message)
        return super().on(connection, method, path, headers, body)

    def write(self, connection, out, message, headers):
        if message["method"] != "tools/call":
            return super().write(connection, out, message, headers)
        connection.sendall(HEAD.encode())
        tools = [{"name": "weather", "inputSchema": {"type": "object"}}]
        messages, got = [{"role": "user", "content": {"type": "text", "text": "How warm is it?"}}], []
        for name in ("q1", "q2"):
            params = {"messages": messages, "maxTokens": 9, "tools": tools, "toolChoice": {"mode": "auto"}}
            connection.sendall(event({"jsonrpc": "2.0", "id": name, "method": "sampling/createMessage", "params": params}).encode())
            got.append(self.answers.get(timeout=15).get("result"))
            result = {"type": "tool_result", "toolUseId": "u1", "content": [{"type": "text", "text": "22"}]}
            messages += [{"role": "assistant", "content": USE["content"]}, {"role": "user", "content": [result]}]
        connection.sendall(event({"jsonrpc": "2.0", "id": message["id"], "result": content(json.dumps(got))}).encode())
        return False


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url)
    for sampling in ({}, {"tools": {}}, {"tools": {}, "context": {}}):
        able = {"sampling": sampling}
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, capabilities=able).answer(7)["result"]["taskId"]
        for turn, answer in enumerate((USE, END)):
            asked = raincheck.finished(task, capabilities=able)["result"]["inputRequests"]
            (key, question), *more = asked.items()
            assert not more and question["method"] == "sampling/createMessage", asked
            assert question["params"]["toolChoice"] == {"mode": "auto"} and question["params"]["tools"][0]["name"] == "weather", question
            assert len(question["params"]["messages"]) == 1 + 2 * turn, question
            raincheck.modern("tasks/update", {"taskId": task, "inputResponses": {key: answer}}, capabilities=able)
        end = raincheck.finished(task, capabilities=able)["result"]
        assert json.loads(end["result"]["content"][0]["text"]) == [USE, END], end
        assert server.declared[-1] == able, server.declared
