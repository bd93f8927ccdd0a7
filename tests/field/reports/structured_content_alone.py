"""Area: servers
Source: modelcontextprotocol/python-sdk#1796
Met: A tool returns `structuredContent` and no `content`, or an empty one or null, and clients fail to read the result or show an empty one (dust-tt/dust#26388,
nicobailon/pi-mcp-adapter#113).
First try: pass
Verdict: Results pass to the byte, in calls, in tasks and through `task_result`; what is read of them for an excerpt or a status is read with care.
"""

import json

from servers import LegacyServer

RESULTS = {
    "alone": {"structuredContent": {"degrees": 22.50}},
    "empty": {"content": [], "structuredContent": {"degrees": 22.50}},
    "nulls": {"content": None, "structuredContent": {"degrees": 22.50}, "isError": None, "_meta": None},
    "unknown": {"content": [{"type": "hologram", "degrees": 22.50}]},
}


class Server(LegacyServer):
    tools = [{"name": name, "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "properties": {"degrees": {"type": "number"}}}} for name in RESULTS]

    def tool(self, message, connection, headers):
        super().tool(message, connection, headers)
        return RESULTS[message["params"]["name"]]


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "100ms"\n')
    helped = field.raincheck("--upstream", server.url, config='[tasks]\ncompanion_tools = true\nfallback_after = "200ms"\n')
    session, slow = raincheck.session(), helped.session()
    slow.ask("tools/list")
    for name, result in RESULTS.items():
        plain = raincheck.modern("tools/call", {"name": name, "arguments": {}}, tasks=False).answer(7)["result"]
        task = raincheck.modern("tools/call", {"name": name, "arguments": {"s": 0.2}}).answer(7)["result"]["taskId"]
        ended = raincheck.finished(task)["result"]
        for got in (plain, ended["result"], session.call(name)):
            got = got.get("result", got)
            assert {key: got.get(key) for key in result} == result, (name, got)
        ticket = slow.call(name, {"s": 0.5})["result"]["structuredContent"]["ticket"]
        for turn in range(1, 9):
            got = slow.call("task_result", {"ticket": ticket, "round": turn})["result"]
            if "ticket" not in (got.get("structuredContent") or {}):
                break
        assert "22.5" in json.dumps(got), (name, got)
