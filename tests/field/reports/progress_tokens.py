"""Area: clients
Source: twentyhq/twenty#24559
Met: Progress came with a token that the client had not given, or in another type, and strict clients took the connection for broken.
First try: pass
Verdict: Progress has the client's own token to the byte, be it 0, 1.0, a long number or a text, wherever raincheck puts one of its own at the server, and also if the
    server gives that back as another type. A client without a token gets no progress.
"""

import json
import time

from servers import LegacyServer, ModernServer, content, event

TOKENS = [b"0", b"1.0", b"-1", b"12345678901234567890123", b'"0"', b'"a b"', b'""']


class Legacy(LegacyServer):
    def on(self, connection, method, path, headers, body):
        return self.tells(connection, body) if b'"tools/call"' in body else super().on(connection, method, path, headers, body)

    def tells(self, connection, body):
        message = json.loads(body)
        self.seen.append(("tools/call", message, {}))
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        token = (message["params"].get("_meta") or {}).get("progressToken")
        if token is not None:
            # As servers do that keep tokens as text or as floating point.
            shape = message["params"]["arguments"].get("shape")
            token = {"text": str, "float": float, None: lambda it: it}[shape](token) if not isinstance(token, str) else token
            for n in (1, 2):
                params = {"progressToken": token, "progress": n, "total": 2}
                connection.sendall(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode())
        time.sleep(0.1)
        connection.sendall(event({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **content("ok")}}).encode())
        return False


class Modern(ModernServer):
    tells = Legacy.tells

    def on(self, connection, method, path, headers, body):
        return self.tells(connection, body) if b'"tools/call"' in body else super().on(connection, method, path, headers, body)


ABOUT = b'"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}'


def test(field):
    for server in (Legacy(), Modern()):
        raincheck = field.raincheck("--upstream", server.url)
        session = raincheck.session()
        translated = isinstance(server, Modern)
        for token in TOKENS:
            for shape in (b"null", b'"text"', b'"float"'):
                call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"shape":%s},"_meta":{"progressToken":%s%s}}}'
                ways = [
                    # Where the server's own stream passes, the server's own tokens do.
                    (translated, session.say(call % (shape, token, b""))),
                    (not translated, raincheck.http("POST", call % (shape, token, b"," + ABOUT), {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "slow"})),
                ]
                for carried, said in ways:
                    assert said.answer(1)["result"]["content"]
                    if carried or shape == b"null":
                        sent = said.body.replace(b" ", b"").count(b'"progressToken":' + token.replace(b" ", b""))
                        assert sent == 2, (token, shape, said.text)
        assert b"progressToken" not in session.ask("tools/call", {"name": "slow", "arguments": {}}).body
