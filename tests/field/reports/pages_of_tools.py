"""Area: clients
Source: sparfenyuk/mcp-proxy#233
Met: A proxy dropped the cursor of `tools/list`, so clients that follow pages got the first one again and again, and never saw the tools of the others.
First try: pass
Verdict: Cursors pass on every way; each tool is listed once, raincheck's own tools stand on the last page only, and tools of later pages are as good as those of the first:
    rules and tasks apply to them.
"""

import json

from servers import STDIO, LegacyServer, ModernServer, content

PAGES = {None: (["a", "b"], "p2"), "p2": (["c", "d"], "p/3=+"), "p/3=+": (["slow", "last"], None)}


def page(message):
    names, following = PAGES[(message.get("params") or {}).get("cursor")]
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]} | ({"nextCursor": following} if following else {})


class Legacy(LegacyServer):
    version = "2025-11-25"

    def result(self, message, connection, headers):
        return page(message) if message["method"] == "tools/list" else super().result(message, connection, headers)


class Modern(ModernServer):
    def result(self, message, connection, headers):
        return {"resultType": "complete", **page(message)} if message["method"] == "tools/list" else super().result(message, connection, headers)


PROGRAM = f"PAGES = {PAGES!r}\n" + STDIO.replace(
    '        return {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}',
    '        names, following = PAGES[(message.get("params") or {}).get("cursor")]\n'
    '        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]} | ({"nextCursor": following} if following else {})',
)


def walk(get):
    """The names of each page, as a client that follows cursors sees them."""
    cursor, out = None, []
    while len(out) < 9:
        result = get({} if cursor is None else {"cursor": cursor})
        out.append([tool["name"] for tool in result["tools"]])
        if (cursor := result.get("nextCursor")) is None:
            return out
    raise AssertionError(f"the pages have no end: {json.dumps(out)}")


def test(field):
    program = field.write("server.py", PROGRAM)
    plain = [names for names, _ in PAGES.values()]
    ours = {"task_result", "task_status", "task_cancel", "task_answer"}
    for upstream in (["--upstream", Legacy().url], ["--upstream", Modern().url], ["--", "python3", program]):
        for config in (None, '[tasks]\ncompanion_tools = true\n[[tools]]\nname = "last"\nmode = "always"\n'):
            raincheck = field.raincheck(*upstream, config=config)
            session, pipe = raincheck.session(), field.stdio(*upstream, config=config)
            pipe.hello()

            def on_pipe(params, pipe=pipe):
                pipe.say({"jsonrpc": "2.0", "id": f"page {params}", "method": "tools/list", "params": params})
                return pipe.answer(f"page {params}")["result"]

            ways = {
                "session": lambda params: session.ask("tools/list", params).answer(1)["result"],
                "modern": lambda params: raincheck.modern("tools/list", params, tasks=False).answer(7)["result"],
                "tasks": lambda params: raincheck.modern("tools/list", params).answer(7)["result"],
                "stdio": on_pipe,
            }
            for way, get in ways.items():
                pages = walk(get)
                assert pages[:2] == plain[:2] and pages[2][:2] == plain[2], (way, pages)
                more = {*pages[2][2:]}
                assert more in (set(), ours) and len(pages[2]) == 2 + len(more), (way, pages)
                assert bool(more) == (way == "stdio" or bool(config) and way != "tasks"), (way, config, pages)
            if config:
                task = raincheck.modern("tools/call", {"name": "last", "arguments": {}}).answer(7)["result"]["taskId"]
                assert raincheck.finished(task)["result"]["status"] == "completed"
