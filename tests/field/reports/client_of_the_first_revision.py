"""Area: clients
Source: OpenDigitalProductFactory/opendigitalproductfactory#705
Met: A client that asks for 2024-11-05 was offered a much newer revision, took that for a fatal mismatch, and never connected.
First try: fail: in front of a server of 2026-07-28 only, such a client was offered 2025-11-25, over HTTP and `raincheck stdio`, and its later requests were refused (400) where they named 2024-11-05
Verdict: Mended: 2024-11-05 is agreed on in front of a modern server, too.
"""

from servers import STDIO, LegacyServer, ModernServer


class Old(LegacyServer):
    """Speaks the client's revision, as the official servers do."""

    version = "2024-11-05"


def test(field):
    program = field.write("server.py", STDIO.replace("2025-06-18", "2024-11-05"))
    for upstream in (["--upstream", Old().url], ["--", "python3", program], ["--upstream", ModernServer().url]):
        raincheck = field.raincheck(*upstream)
        session = raincheck.session("2024-11-05")
        assert session.call("slow")["result"]["content"], session.headers
        agreed = session.first.answer(0)["result"]["protocolVersion"]
        assert agreed == "2024-11-05", f"{upstream}: {agreed}"
        pipe = field.stdio(*upstream)
        agreed = pipe.hello("2024-11-05")["result"]["protocolVersion"]
        assert agreed == "2024-11-05", f"{upstream}: {agreed}"
        pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}})
        assert pipe.answer(1)["result"]["content"]
