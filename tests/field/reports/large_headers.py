"""Area: servers
Source: IBM/mcp-context-forge#6653
Met: Tokens of 8 kB and more are cut off or refused by what stands between client and server, and the failure that follows says nothing of the size.
First try: pass
Verdict: Headers of 32 kB pass in all eras and to tasks, and a server that finds them too large is asked once: the call says 431 and that nothing ran.
"""

import json

from servers import LegacyServer, reply


class Server(LegacyServer):
    """Takes so many bytes of headers, as servers do: 8 kB in Node and uvicorn were usual limits."""

    room = 1 << 20

    def on(self, connection, method, path, headers, body):
        if sum(len(name) + len(value) for name, value in headers.items()) > self.room:
            if method == "POST" and json.loads(body).get("method") == "tools/call":
                self.seen.append(("refused", None, headers))
            return reply(connection, "Request Header Fields Too Large", "text/plain", "431 Request Header Fields Too Large")
        return super().on(connection, method, path, headers, body)


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "100ms"\n')
    for size in (8_000, 12_000, 32_000):
        token = "Bearer " + "a" * size
        head = {"authorization": token, "cookie": "crumb=" + "b" * 6_000}
        assert "result" in raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False, headers=head).answer(7), size
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}, headers=head).answer(7)["result"]["taskId"]
        assert raincheck.finished(task, headers=head)["result"]["status"] == "completed", size
        session = raincheck.session(headers=head)
        assert "result" in session.call("slow"), size
        sent = [headers["authorization"] for method, _, headers in server.seen if method == "tools/call"][-3:]
        assert sent == [token] * 3, (size, [len(text) for text in sent])
    server.room = 8_192
    answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False, headers={"authorization": "Bearer " + "a" * 32_000}).answer(7)
    assert "431" in answer["error"]["message"] and answer["error"]["data"]["io.raincheck/effect"] == "none", answer
    assert sum(method == "refused" for method, _, _ in server.seen) <= 1, "sent more than once"
