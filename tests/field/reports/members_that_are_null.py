"""Area: servers
Source: gensecaihq/Wazuh-MCP-Server#59
Met: A server writes every member of its messages, with null for those that are not there, and its answers in arrays; clients take the answer for a request or refuse it.
First try: fail: raincheck takes a `"method": null` beside the result for no answer where a call passes on a session of a legacy client: the client gets the result and then
a second answer with the same id, "The connection to the server broke before it answered; it may have run". Modern clients get the result alone.
Verdict: Mended: a `method` of null is no method, so such a message is the answer wherever it passes, and nothing follows it.
"""

from servers import LegacyServer, event, reply


class Server(LegacyServer):
    shape = "events"

    def write(self, connection, out, message, headers):
        everything = {"jsonrpc": "2.0", "id": None, "method": None, "params": None, "result": None, "error": None}
        out = {**everything, **out}
        if self.shape == "events":
            reply(connection, event(out), "text/event-stream", headers=headers)
        else:
            reply(connection, [out] if self.shape == "array" else out, headers=headers)


def test(field):
    failed = []
    for shape in ("events", "json", "array"):
        server = Server()
        server.shape = shape
        raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "150ms"\n')
        session = raincheck.session()
        for request in (lambda s=session: s.ask("tools/list"), lambda s=session: s.ask("tools/call", {"name": "slow", "arguments": {}})):
            got = request()
            flat = [m for read in got.messages() for m in (read if isinstance(read, list) else [read])]
            answers = [m for m in flat if m.get("id") == 1]
            if len(answers) != 1 or not answers[0].get("result"):
                failed.append(f"{shape}: a legacy client got {answers}")
        plain = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.3}}).answer(7)
        ended = raincheck.finished(task["result"]["taskId"])["result"]
        if "result" not in plain or ended["status"] != "completed":
            failed.append(f"{shape}: a modern client got {plain} {ended}")
    assert not failed, "\n".join(failed)
