"""Area: clients
Source: modelcontextprotocol/python-sdk#934
Met: Clients of 2025-03-26, whose revision says that a server must take batches, had theirs refused.
First try: fail: on a session that had agreed on 2025-03-26, a batch was refused (400) in front of a program and of a modern server; over `raincheck stdio` under the id null. A legacy server over HTTP gets it as it is
Verdict: open: revision 2025-06-18 removed batches and no official client sends them, so their members are not taken apart. Over HTTP such a request is refused with 400 and nothing of it runs; over stdio with an error under the id null.
"""

import json

from servers import STDIO, LegacyServer, ModernServer, reply


class Batches(LegacyServer):
    """A server of 2025-03-26, such as the TypeScript SDK 1.x makes."""

    version = "2025-03-26"

    def on(self, connection, method, path, headers, body):
        message = json.loads(body) if method == "POST" else None
        if not isinstance(message, list):
            return super().on(connection, method, path, headers, body)
        out = [{"jsonrpc": "2.0", "id": one["id"], "result": self.result(one, connection, headers)} for one in message if "id" in one]
        return reply(connection, out)


def test(field):
    program = field.write("server.py", STDIO.replace("2025-06-18", "2025-03-26"))
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "slow", "arguments": {}}},
    ]
    wrong = []
    for upstream in (["--upstream", Batches().url], ["--", "python3", program], ["--upstream", ModernServer().url]):
        session = field.raincheck(*upstream).session("2025-03-26")
        assert session.first.answer(0)["result"]["protocolVersion"] == "2025-03-26"
        said = session.say(batch)
        answers = [one for found in (said.messages() if said.status == 200 else []) for one in (found if isinstance(found, list) else [found])]
        if {one.get("id") for one in answers if "result" in one} != {1, 2}:
            wrong.append(f"{upstream[:2]}: {said.status} {said.text[:150]}")
        # A client of a later revision may be refused, but must hear that.
        said = field.raincheck(*upstream).session("2025-06-18").say(batch)
        if said.status == 202:
            wrong.append(f"{upstream[:2]}, 2025-06-18: 202 without an answer")
    assert not wrong, "\n".join(wrong)
