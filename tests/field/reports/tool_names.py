"""Area: clients
Source: anthropics/claude-code#2257
Met: Tools whose names have a slash, a dot, a space or letters of another script could be listed and not called, because somebody between client and server would not have the name.
First try: pass
Verdict: Any name passes to the byte in body and rules; in `Mcp-Name` one that is no plain header value goes in the coded form of 2026-07-28, and is read in it.
"""

import base64

from servers import STDIO, LegacyServer, ModernServer, content

NAMES = ["github/git_commit", "admin.tools.list", "Query all components", "na\xefve", "\u5de5\u5177", "\U0001f600", "a,b;c=d", "x%20y", " lead", "=?base64?eA==?=", "a" * 300, "__proto__", "TOOL"]


class Legacy(LegacyServer):
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]

    def tool(self, message, connection, headers):
        return content(message["params"]["name"])


class Modern(ModernServer):
    tools, named = Legacy.tools, None

    def tool(self, message, connection, headers):
        self.named = headers["mcp-name"]
        return content(message["params"]["name"])


def coded(name):
    plain = name.isascii() and name.isprintable() and name.strip() == name and not name.startswith("=?base64?")
    return name if plain else f"=?base64?{base64.b64encode(name.encode()).decode()}?="


def test(field):
    program = field.write("server.py", STDIO.replace('"text": "done"', '"text": message["params"]["name"]'))
    modern = Modern()
    config = '[[tools]]\nname = "github/*"\nmode = "always"\n'
    for upstream in (["--upstream", Legacy().url], ["--upstream", modern.url], ["--", "python3", program]):
        raincheck, pipe = field.raincheck(*upstream, config=config), field.stdio(*upstream)
        session = raincheck.session()
        pipe.hello()
        for id, name in enumerate(NAMES, 1):
            call = {"name": name, "arguments": {}}
            assert session.call(name)["result"]["content"][0]["text"] == name
            answer = raincheck.modern("tools/call", call, headers={"mcp-name": coded(name)}).answer(7)["result"]
            if name.startswith("github/"):
                answer = raincheck.finished(answer["taskId"])["result"]["result"]
            assert answer["content"][0]["text"] == name
            pipe.say({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call})
            assert pipe.answer(id)["result"]["content"][0]["text"] == name
            if upstream[1] == modern.url:
                assert modern.named == coded(name), (name, modern.named)
        if upstream[0] == "--upstream":
            assert [tool["name"] for tool in session.ask("tools/list").answer(1)["result"]["tools"]] == NAMES
