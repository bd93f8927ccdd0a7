"""Area: clients
Source: scottcrosby-securebine/kali-mcp-server#84
Met: A tool call whose arguments were a deep tree got no answer under its id, so the client waited for it without end.
First try: fail: 62 levels of arguments and more were refused where raincheck reads the message, though the server takes them; over `raincheck stdio` under the id null, so the call was never answered
Verdict: Mended: 4096 levels are read from clients, as from servers.
"""

import json

from servers import STDIO, LegacyServer, ModernServer, content


class Legacy(LegacyServer):
    def tool(self, message, connection, headers):
        return content(json.dumps(message["params"]["arguments"]))


class Modern(ModernServer):
    tool = Legacy.tool


ECHO = STDIO.replace('"text": "done"', '"text": json.dumps(message["params"]["arguments"])')


def tree(levels):
    """The document of an editor: such a tree is what tools for pages, designs and programs take."""
    return {"doc": json.loads("[" * levels + "]" * levels)}


def test(field):
    program = field.write("server.py", ECHO)
    wrong = []
    for upstream in (["--upstream", Legacy().url], ["--upstream", Modern().url], ["--", "python3", program]):
        raincheck, pipe = field.raincheck(*upstream), field.stdio(*upstream)
        pipe.hello()
        session = raincheck.session()
        # What the official servers in Python, TypeScript, Go and Rust read.
        for id, levels in enumerate((30, 100, 500), 1):
            arguments = tree(levels)
            wanted = json.dumps(arguments)
            call = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "slow", "arguments": arguments}}
            for way, said in (("session", session.say(call)), ("modern", raincheck.modern("tools/call", call["params"], id, tasks=False))):
                if wanted not in said.text.replace('\\"', '"'):
                    wrong.append(f"{upstream[:2]}, {way}, {levels} levels: {said.status} {said.text[:120]}")
            pipe.say(call)
            try:
                if (answer := pipe.answer(id, 3)).get("result", {}).get("content", [{}])[0].get("text") != wanted:
                    wrong.append(f"{upstream[:2]}, stdio, {levels} levels: {str(answer)[:120]}")
            except AssertionError:
                wrong.append(f"{upstream[:2]}, stdio, {levels} levels: no answer under this id; last: {pipe.seen[-1]}")
    assert not wrong, "\n".join(wrong)
