"""Area: servers
Source: modelcontextprotocol/rust-sdk#1149
Met: Servers of 2025 answer the first request of a newer client, `server/discover`, with whatever they have for a method that they do not know: an HTTP error, a closed connection
or silence; clients that fall back to `initialize` for some of these only cannot use servers that worked before (go-sdk#1014 then fell back for any error, rust-sdk#1149 for
silence, csharp-sdk#1766 for a status; go-sdk#1177 met programs that end).
First try: fail: where the server says nothing to the probe, no request of a modern client is ever served: raincheck does not try `initialize`, and asks again even after
sessions of legacy clients have shown that the server speaks it.
Verdict: Mended: a server over HTTP that leaves `server/discover` without an answer for 3 s is sent `initialize`, too, and is legacy if it begins a session and says nothing to
the first request for 3 s more.
"""

import json
import time

from servers import LegacyServer

PROBED = {
    "silence": lambda c, id: time.sleep(60) or False,
}

class Server(LegacyServer):
    def on(self, connection, method, path, headers, body):
        message = json.loads(body) if method == "POST" else {}
        if message.get("method") == "server/discover":
            return self.probed(connection, message["id"])
        return super().on(connection, method, path, headers, body)


def test(field):
    running = {}
    for name, probed in PROBED.items():
        server = Server()
        server.probed = probed
        running[name] = field.raincheck("--upstream", server.url)
        # Through raincheck, a legacy client uses the server without trouble.
        assert "result" in running[name].session().call("slow"), name
    failed = []
    for name, raincheck in running.items():
        began = time.monotonic()
        answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False, seconds=12)
        took = time.monotonic() - began
        if '"result"' not in answer.text:
            failed.append(f"{name}: after {took:.0f} s: {answer.status} {answer.text[:200]}")
    assert not failed, "\n".join(failed)
