"""Area: servers
Source: use-novamira/novamira#82
Met: A server in PHP writes an empty object as `[]`, in schemas, capabilities or results, and clients refuse the whole list or the handshake (logiscape/mcp-sdk-php#1;
WordPress/mcp-adapter#116: the same with `{}` from the client).
First try: pass
Verdict: raincheck reads an array in place of an object as one without members, adds what it has to add, and leaves every other byte: what the server wrote to clients, and `{}`
of clients to the server.
"""

import json

from servers import LegacyServer, content

TOOL = {"name": "slow", "inputSchema": {"type": "object", "properties": [], "required": []}, "annotations": [], "_meta": [], "execution": []}


class Server(LegacyServer):
    def result(self, message, connection, headers):
        match message["method"]:
            case "initialize":
                about = {"name": "php", "version": "8"}
                return {"protocolVersion": "2025-06-18", "capabilities": self.capabilities, "serverInfo": about, "_meta": []}
            case "tools/list":
                return {"tools": [TOOL], "_meta": []}
            case "ping":
                return []
        return super().result(message, connection, headers)

    def tool(self, message, connection, headers):
        super().tool(message, connection, headers)
        return content("done") | {"structuredContent": [], "_meta": []}


def test(field):
    for capabilities in ([], {"tools": [], "logging": [], "experimental": []}):
        server = Server()
        server.capabilities = capabilities
        for companion in ("false", "true"):
            raincheck = field.raincheck("--upstream", server.url, config=f'[tasks]\ngrace_window = "100ms"\ncompanion_tools = {companion}\n')
            assert "result" in raincheck.modern("server/discover").answer(7), capabilities
            session = raincheck.session()
            for listed in (raincheck.modern("tools/list", tasks=False).answer(7)["result"], session.ask("tools/list").answer(1)["result"]):
                tool = listed["tools"][0]
                assert {key: tool[key] for key in ("name", "inputSchema", "annotations")} == {key: TOOL[key] for key in ("name", "inputSchema", "annotations")}, tool
                assert len(listed["tools"]) == (5 if companion == "true" else 1), listed
            plain = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)["result"]
            task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}).answer(7)["result"]["taskId"]
            ended = raincheck.finished(task)["result"]["result"]
            for got in (plain, ended, session.call("slow", {})["result"]):
                assert got["content"] == content("done")["content"] and got["structuredContent"] == [], got
            assert session.ask("ping", id=5).status == 200
        calls = [message["params"] for method, message, _ in server.seen if method == "tools/call"]
        assert all(isinstance(params["arguments"], dict) for params in calls), json.dumps(calls)
