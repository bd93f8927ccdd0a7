"""Area: clients
Source: TJC-LP/fast-mcp-scala#56
Met: A client set the log level right after `initialize`; the server had said that it logs and answered with an HTTP error, which the client took for a broken connection.
First try: pass
Verdict: On a session in front of a modern server, which has no such request, raincheck keeps the level and asks for logs of it with each call; an unknown level is -32602 on HTTP 200,
    and a level for a server that logs nothing is taken. Elsewhere the server answers.
"""

import json

from servers import LegacyServer, ModernServer, content


class Logging(LegacyServer):
    capabilities = {"tools": {}, "logging": {}}

    def result(self, message, connection, headers):
        return {} if message["method"] == "logging/setLevel" else super().result(message, connection, headers)


class Modern(ModernServer):
    capabilities = {"tools": {}, "logging": {}}

    def tool(self, message, connection, headers):
        return content(json.dumps(message["params"]["_meta"].get("io.modelcontextprotocol/logLevel")))


def test(field):
    for server in (Logging(), Modern()):
        raincheck, pipe = field.raincheck("--upstream", server.url), field.stdio("--upstream", server.url)
        session = raincheck.session()
        assert session.first.answer(0)["result"]["capabilities"]["logging"] == {}
        pipe.hello()
        for level in ("debug", "error", "emergency"):
            assert session.ask("logging/setLevel", {"level": level}).answer(1)["result"] == {}
            pipe.say({"jsonrpc": "2.0", "id": level, "method": "logging/setLevel", "params": {"level": level}})
            assert pipe.answer(level)["result"] == {}
            if isinstance(server, Modern):
                assert json.loads(session.call("slow")["result"]["content"][0]["text"]) == level
                pipe.say({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "slow", "arguments": {}}})
                assert json.loads(pipe.answer(5)["result"]["content"][0]["text"]) == level
        if isinstance(server, Modern):
            for params in ({"level": "verbose"}, {"level": 7}, {}):
                said = session.ask("logging/setLevel", params)
                assert said.status == 200 and said.answer(1)["error"]["code"] == -32602, said.text
    for server in (LegacyServer(), ModernServer()):
        session = field.raincheck("--upstream", server.url).session()
        said = session.ask("logging/setLevel", {"level": "info"})
        answer = said.answer(1)
        assert said.status == 200 and (answer.get("result") == {} or answer["error"]["code"] == -32601), said.text
        assert "logging" not in session.first.answer(0)["result"]["capabilities"]
