"""Area: servers
Source: speakeasy-api/gram#3998
Met: A gateway answers 200 with a page, a bare text or an envelope of its own in place of JSON-RPC, or 502 with a page of HTML, and the client shows an error of its parser that
nobody can relate to the gateway (langgenius/dify#22272).
First try: pass
Verdict: The error says that the answer was no MCP message, its status and type and the words of the page without markup, and whether the call may have run; nothing hangs, and the
next call is served as soon as the server is back.
"""

import json

from servers import LegacyServer, reply

PAGE = "<!doctype html><html><head><title>{0}</title><style>b {{}}</style></head><body><h1>{0}</h1><hr>nginx/1.25</body></html>"
SAID = {
    "a page of a login": (PAGE.format("Sign in"), "text/html", "200 OK", "Sign in"),
    "a text": ("upstream connect error or disconnect/reset before headers", "text/plain", "200 OK", "upstream connect error"),
    "an envelope": ('{"Output":{"a":1},"Version":"1.0"}', "application/json", "200 OK", "no id"),
    "nothing": ("", "application/json", "200 OK", "not a valid MCP message"),
    "null": ("null", "application/json", "200 OK", "not a valid MCP message"),
    "502": (PAGE.format("502 Bad Gateway"), "text/html", "502 Bad Gateway", "HTTP 502 Bad Gateway"),
    "524": (PAGE.format("A timeout occurred"), "text/html; charset=UTF-8", "524 ", "HTTP 524"),
}


class Server(LegacyServer):
    bad, of = None, "tools/call"

    def on(self, connection, method, path, headers, body):
        if method == "POST" and self.bad and json.loads(body).get("method") == self.of:
            text, kind, status, _ = self.bad
            return reply(connection, text, kind, status)
        return super().on(connection, method, path, headers, body)


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "100ms"\n')
    for name, said in SAID.items():
        server.bad = None
        assert "result" in raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7), name
        server.bad = said
        for tasks in (False, True):
            answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=tasks).answer(7)
            if answer.get("result", {}).get("resultType") == "task":
                answer = raincheck.finished(answer["result"]["taskId"])["result"]
            error = answer["error"]
            assert said[3] in error["message"] and "<" not in error["message"], (name, error)
            assert error["data"]["io.raincheck/effect"] == "unknown", (name, error)
    # A server that is not there yet: nothing ran.
    fresh = Server()
    fresh.bad, fresh.of = SAID["502"], "initialize"
    behind = field.raincheck("--upstream", fresh.url)
    error = behind.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)["error"]
    assert error["data"]["io.raincheck/effect"] == "none" and "502" in error["message"], error
    fresh.bad = None
    assert "result" in behind.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)
