"""Area: clients
Source: PrefectHQ/fastmcp#1867
Met: Some clients add a slash to the address, and a redirect to the address without it broke their POST requests.
First try: pass
Verdict: The path with a slash is served like the one without, with no redirect, for every method; any other path is refused with 404 and a text that names the right one.
"""

from servers import STDIO, LegacyServer, ModernServer


def test(field):
    program = field.write("server.py", STDIO)
    for upstream in (["--upstream", LegacyServer().url], ["--upstream", ModernServer().url], ["--", "python3", program]):
        raincheck = field.raincheck(*upstream)
        session = raincheck.session()
        for path in ("/mcp/", "/mcp/?user=1", "/mcp?user=1"):
            said = session.ask("tools/call", {"name": "slow", "arguments": {}}, path=path)
            assert said.status == 200 and said.answer(1)["result"]["content"], (path, said.text)
            said = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, path=path)
            assert said.status == 200 and said.answer(7)["result"]["content"], (path, said.text)
        for path in ("/", "/sse", "/MCP", "/mcp/messages", "/api/mcp"):
            said = session.ask("tools/list", path=path)
            assert said.status == 404 and "location" not in said.headers and "/mcp" in said.text, (path, said.text)
        assert raincheck.http("DELETE", None, session.headers, path="/mcp/").status in (200, 202, 204)
    # The same behind a gateway that adds a path of its own.
    raincheck = field.raincheck("--upstream", LegacyServer().url, config='[listen]\npath = "/team/build/mcp"\n')
    assert raincheck.modern("tools/list", path="/team/build/mcp/").answer(7)["result"]["tools"]
    assert "/team/build/mcp" in raincheck.http("POST", {}, path="/mcp").text
