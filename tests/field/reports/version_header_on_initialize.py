"""Area: clients
Source: xpzouying/xiaohongshu-mcp#697
Met: A client wrote its newest revision into MCP-Protocol-Version already on `initialize`, and was refused by HTTP 400 before any revision could be negotiated.
First try: fail: `initialize` under a header of 2026-07-28 or later was refused as a modern request, with "_meta is missing", in front of all kinds of servers
Verdict: Mended: `initialize` without `_meta` of 2026 is of a legacy client, whatever its header says.
"""

from servers import STDIO, LegacyServer, ModernServer


def test(field):
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    program = field.write("server.py", STDIO)
    for upstream in (["--upstream", LegacyServer().url], ["--upstream", ModernServer().url], ["--", "python3", program]):
        raincheck = field.raincheck(*upstream)
        for version in ("2025-11-25", "2024-11-05", "2026-07-28", "2027-03-01"):
            first = raincheck.http("POST", hello, {"mcp-protocol-version": version})
            assert first.status == 200, f"{upstream}, header {version}: {first.status} {first.text}"
            assert first.answer(0)["result"]["protocolVersion"] == "2025-06-18"
