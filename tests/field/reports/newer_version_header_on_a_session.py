"""Area: clients
Source: CodeWithCJ/SparkyFitness#2162
Met: A client named a revision in MCP-Protocol-Version that was newer than the one it had negotiated, and nothing in the refusal said that the version was what was wrong.
First try: fail: a request on a session under a header of 2026 or later, or under one that is no date, was refused with "Invalid params: _meta is missing"
Verdict: Mended: on a session the message says what it is, whatever version its header names, and raincheck or the server refuses a version that it does not speak by that name.
"""

from servers import STDIO, LegacyServer, ModernServer


def test(field):
    program = field.write("server.py", STDIO)
    for upstream in (["--upstream", LegacyServer().url], ["--upstream", ModernServer().url], ["--", "python3", program]):
        raincheck = field.raincheck(*upstream)
        session = raincheck.session("2025-06-18")
        for version in ("2026-07-28", "2027-03-01", "draft"):
            session.headers["mcp-protocol-version"] = version
            said = session.ask("tools/list")
            if said.status == 200:  # The session knows what was agreed on.
                assert said.answer(1)["result"]["tools"]
                continue
            assert said.status == 400, said.status
            assert "version" in said.text.lower(), f"{upstream}, {version}: the refusal does not say what is wrong: {said.text}"
        session.headers["mcp-protocol-version"] = "2025-06-18"
        assert session.ask("tools/list").answer(1)["result"]["tools"]
