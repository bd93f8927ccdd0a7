"""Area: clients
Source: MemPalace/mempalace#2231
Met: Requests with a valid id and a method or params of a wrong type were dropped without an answer, over pipes and over HTTP, so the client waited for ever.
First try: fail: a request whose method is no string was taken for an answer: 202 and no answer over HTTP in front of a program, and silence over `raincheck stdio`
Verdict: Mended: a message with an id that is neither a request nor an answer is refused, with 400 or under its id, and an answer may have a method and params of null.
"""

from servers import STDIO, LegacyServer, ModernServer

STRANGE = [
    {"method": "tools/list", "params": "oops"},
    {"method": "tools/list", "params": 5},
    {"method": "tools/call", "params": {"name": "slow", "arguments": {}, "_meta": "x"}},
    {"method": "tools/call", "params": {"name": "slow", "arguments": {}, "_meta": None}},
    {"method": "tools/call", "params": {"name": "slow", "task": None}},
    {"method": ""},
    {"method": "no/such", "params": None},
    {"method": 123},
    {"method": None},
    {"method": []},
]


class Legacy(LegacyServer):
    def result(self, message, connection, headers):
        return super().result(message, connection, headers) if isinstance(message["method"], str) else None


def test(field):
    program = field.write("server.py", STDIO)
    wrong = []
    for upstream in (["--upstream", Legacy().url], ["--", "python3", program], ["--upstream", ModernServer().url]):
        session, pipe = field.raincheck(*upstream).session(), field.stdio(*upstream)
        pipe.hello()
        for id, strange in enumerate(STRANGE, 1):
            message = {"jsonrpc": "2.0", "id": id, **strange}
            said = session.say(message)
            # An HTTP error tells the client that there is no answer. An accepted request must have one.
            if said.status == 202 or said.status < 300 and not any(m.get("id") == id for m in said.messages()):
                wrong.append(f"{upstream[:2]}, HTTP, {strange}: {said.status} {said.text[:100]}")
            pipe.say(message)
            try:
                pipe.answer(id, 2)
            except AssertionError:
                wrong.append(f"{upstream[:2]}, stdio, {strange}: no answer")
    assert not wrong, "\n".join(wrong)
