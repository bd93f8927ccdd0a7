"""Area: clients
Source: KeeperHub/keeperhub#2108
Met: Calls whose arguments were null or left out failed with an internal error that told the model nothing.
First try: pass
Verdict: Null and absent params, arguments, cursors and _meta pass as they are or count as absent; what raincheck itself must read and cannot is -32602 and names the member.
"""

from servers import STDIO, LegacyServer, ModernServer


def test(field):
    program = field.write("server.py", STDIO)
    empty = [
        ("tools/list", {"params": None}),
        ("tools/list", {}),
        ("tools/list", {"params": {"cursor": None}}),
        ("tools/list", {"params": {"_meta": None}}),
        ("ping", {"params": None}),
        ("tools/call", {"params": {"name": "slow"}}),
        ("tools/call", {"params": {"name": "slow", "arguments": None}}),
        ("tools/call", {"params": {"name": "slow", "arguments": None, "_meta": None}}),
        ("tools/call", {"params": {"name": "slow", "arguments": {}, "_meta": {"progressToken": None}}}),
    ]
    for upstream in (["--upstream", LegacyServer().url], ["--upstream", ModernServer().url], ["--", "python3", program]):
        raincheck, pipe = field.raincheck(*upstream), field.stdio(*upstream)
        session = raincheck.session()
        pipe.hello()
        for id, (method, rest) in enumerate(empty, 1):
            message = {"jsonrpc": "2.0", "id": id, "method": method, **rest}
            assert "result" in session.say(message).answer(id), (upstream, message)
            pipe.say(message)
            assert "result" in pipe.answer(id), (upstream, message)
        for notification in ("initialized", "roots/list_changed", "unknown/of/somebody"):
            said = session.say({"jsonrpc": "2.0", "method": f"notifications/{notification}", "params": None})
            assert said.status == 202, (notification, said.text)
        for params in ({"name": "slow"}, {"name": "slow", "arguments": None}):
            assert "result" in raincheck.modern("tools/call", params).answer(7), params
        for params, member in (({"arguments": {}}, "name"), ({"name": "slow", "arguments": []}, "arguments"), ({"name": "slow", "arguments": "{}"}, "arguments")):
            error = raincheck.modern("tools/call", params).answer(7)["error"]
            assert error["code"] in (-32602, -32020) and member in error["message"].lower(), error
