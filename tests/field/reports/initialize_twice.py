"""Area: clients
Source: modelcontextprotocol/csharp-sdk#1422
Met: Clients send `initialize` again on a session that has begun; servers took it or refused it, and clients need to be able to tell which of the two happened.
First try: fail: on a session in front of a modern server, raincheck answered -32601 "Method not found", by which a client of both eras takes the server for one that has no `initialize` at all
Verdict: Mended: it begins another session, whose id comes with the answer. The one before goes on.
"""

from servers import STDIO, LegacyServer, ModernServer


def test(field):
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    program = field.write("server.py", STDIO)
    for upstream in (["--upstream", LegacyServer().url], ["--", "python3", program], ["--upstream", ModernServer().url]):
        pipe = field.stdio(*upstream)
        pipe.hello("2025-06-18")
        pipe.say({"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": params})
        assert "result" in pipe.answer(5)
        pipe.say({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "slow", "arguments": {}}})
        assert pipe.answer(6)["result"]["content"]
        session = field.raincheck(*upstream).session("2025-06-18")
        again = session.ask("initialize", params, 7).answer(7)
        assert "result" in again or again["error"]["code"] == -32600, f"{upstream}: {again}"
        assert session.call("slow")["result"]["content"]
