"""Area: clients
Source: quarkiverse/quarkus-mcp-server#469
Met: A host pinged its server before `initialize`, as the specification allows, and took the error that it got for a server that is not healthy.
First try: fail: `raincheck stdio` in front of a program or of a modern server answered the ping with -32600 "Mcp-Session-Id is missing", which no client on a pipe can have
Verdict: Mended: a ping before `initialize` is answered by raincheck.
"""

from servers import STDIO, LegacyServer, ModernServer


def test(field):
    program = field.write("server.py", STDIO)
    for upstream in (["--upstream", LegacyServer().url], ["--", "python3", program], ["--upstream", ModernServer().url]):
        pipe = field.stdio(*upstream)
        pipe.say({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        answer = pipe.answer(1)
        assert "result" in answer, f"{upstream}: {answer}"
        pipe.hello()
        pipe.say({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        assert pipe.answer(2)["result"]["tools"]
