"""Area: servers
Source: PrefectHQ/fastmcp#5025
Met: An empty text is a cursor to some servers and the end of the list to some clients, so that lists end too early, or never (modelcontextprotocol/csharp-sdk#1072,
DeusData/codebase-memory-mcp#1247: a cursor that leads to the same page again).
First try: pass
Verdict: Cursors pass to the byte in both eras, the four companion tools are on the page without a cursor and on no other, a list of 10,000 resources arrives whole, and where
raincheck itself reads all pages (`raincheck check`, the rules of a call) a list without an end costs a bounded number of requests.
"""

import os
import subprocess

from house import RAINCHECK
from servers import LegacyServer

PAGES = {None: ("first", ""), "": ("second", 'é"\\/= '), 'é"\\/= ': ("third", None)}


class Server(LegacyServer):
    capabilities = {"tools": {}, "resources": {}}
    is_endless, lists = False, 0

    def result(self, message, connection, headers):
        cursor = (message.get("params") or {}).get("cursor")
        match message["method"]:
            case "tools/list":
                self.lists += 1
                name, after = ("same", "again") if self.is_endless else PAGES[cursor]
                return {"tools": [{"name": name, "inputSchema": {"type": "object"}}], "nextCursor": after}
            case "resources/list":
                return {"resources": [{"uri": f"file:///{n}", "name": f"n{n}", "description": "d" * 200} for n in range(10_000)]}
        return super().result(message, connection, headers)


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url, config="[tasks]\ncompanion_tools = true\n")
    session = raincheck.session()
    eras = {
        "modern": lambda method, params: raincheck.modern(method, params, tasks=False).answer(7)["result"],
        "legacy": lambda method, params: session.ask(method, params).answer(1)["result"],
    }
    for era, ask in eras.items():
        page, pages = {}, []
        while len(pages) < 5:
            result = ask("tools/list", page)
            pages.append([tool["name"] for tool in result["tools"]])
            if result.get("nextCursor") is None:
                break
            page = {"cursor": result["nextCursor"]}
        assert [names[0] for names in pages] == ["first", "second", "third"], (era, pages)
        assert [len(names) for names in pages] == [1, 1, 5], (era, pages)
        assert len(ask("resources/list", {})["resources"]) == 10_000, era
    server.is_endless, server.lists = True, 0
    environment = {"PATH": os.environ["PATH"], "HOME": str(field.dir)}
    check = [RAINCHECK, "check", "--upstream", server.url, "--store", "memory:"]
    subprocess.run(check, env=environment, capture_output=True, timeout=20, check=True)
    assert server.lists <= 100, server.lists
    server.lists = 0
    assert "result" in field.raincheck("--upstream", server.url).modern("tools/call", {"name": "same", "arguments": {}}).answer(7)
    assert server.lists <= 100, server.lists
