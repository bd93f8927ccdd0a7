"""Area: clients
Source: wso2/api-manager#5120
Met: A proxy in front of a server kept only name, description and input schema of each tool; titles, annotations, output schemas, icons and `_meta` were gone, and with them what hosts build on.
First try: pass
Verdict: Where raincheck edits a list or translates a result, every member that it does not know stays as it was, in lists, calls and results, in both directions.
"""

import json

from servers import STDIO, LegacyServer, ModernServer

TOOL = {
    "name": "slow",
    "title": "Slow \u2603",
    "description": "x" * 3000,
    "icons": [{"src": "data:image/png;base64,AAAA", "sizes": ["48x48"]}],
    "inputSchema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {"a": {"type": ["string", "null"], "default": None, "x-ui": {"b": [1.0, 1e2]}}}, "$defs": {}},
    "annotations": {"readOnlyHint": True, "title": "T", "x-vendor": 1},
    "_meta": {"ui.resourceUri": "ui://page", "openai/outputTemplate": "ui://page", "vendor": {"deep": [None, False]}},
    "vendorMember": {"kept": "yes"},
}
RESULT = {"content": [{"type": "text", "text": "t", "annotations": {"audience": ["user"]}, "_meta": {"m": 1}}, {"type": "new_kind", "x": 1}], "structuredContent": {"a": None}, "_meta": {"openai/x": [1]}, "more": 1}


class Legacy(LegacyServer):
    version, tools = "2025-11-25", [TOOL]

    def tool(self, message, connection, headers):
        return {**RESULT, "asked": {key: value for key, value in message["params"].get("_meta", {}).items() if key.startswith("vendor")}}


class Modern(ModernServer):
    tools, tool = Legacy.tools, Legacy.tool


PROGRAM = (
    f"TOOL, RESULT = {TOOL!r}, {RESULT!r}\n"
    + STDIO.replace('{"name": "slow", "inputSchema": {"type": "object"}}', "TOOL").replace(
        '{"content": [{"type": "text", "text": "done"}]}', '{**RESULT, "asked": {key: value for key, value in message["params"].get("_meta", {}).items() if key.startswith("vendor")}}'
    )
)


def test(field):
    program = field.write("server.py", PROGRAM)
    asked = {"vendor.example/trace": {"id": "1", "none": None}}
    call = {"name": "slow", "arguments": {}, "_meta": asked}

    def same(got, wanted, where):
        lost = {key: value for key, value in wanted.items() if got.get(key) != value and not (key == "_meta" and wanted["_meta"].items() <= got.get("_meta", {}).items())}
        assert not lost, f"{where}: lost or changed: {json.dumps(lost)[:300]} in {json.dumps(got)[:600]}"

    for upstream in (["--upstream", Legacy().url], ["--upstream", Modern().url], ["--", "python3", program]):
        for config in (None, "[tasks]\ncompanion_tools = true\n", '[[tools]]\nname = "slow"\nmode = "always"\n'):
            raincheck = field.raincheck(*upstream, config=config)
            session = raincheck.session()
            where = f"{upstream[:2]}, {config}"
            same(session.ask("tools/list").answer(1)["result"]["tools"][0], TOOL, f"{where}, session")
            same(raincheck.modern("tools/list").answer(7)["result"]["tools"][0], TOOL, f"{where}, modern")
            same(session.ask("tools/call", call).answer(1)["result"], {**RESULT, "asked": asked}, f"{where}, session")
            result = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, meta=asked).answer(7)["result"]
            if "taskId" in result:
                result = raincheck.finished(result["taskId"])["result"]["result"]
            same(result, {**RESULT, "asked": asked}, f"{where}, modern")
