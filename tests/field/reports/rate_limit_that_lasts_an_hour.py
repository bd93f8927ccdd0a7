"""Area: servers
Source: comet-ml/opik-mcp#96
Met: A quota that is used up is refused with 429 and a `Retry-After` of many minutes; clients that come back sooner, or that wait for it in silence, never tell their user
what is wrong (basicmachines-co/basic-memory#1378 is the same in another client).
First try: fail: raincheck shortens every `Retry-After` to 30 s and comes back against the server's word, and a client without Tasks waits a minute or more for an error that was
certain at once; most clients have given up by then and say only "timed out".
Verdict: Mended: a `Retry-After` of more than 60 s ends the call at once with the server's status, words and time and the effect `none`; shorter ones are waited for, three times at
most.
"""

import json
import time

from servers import LegacyServer, reply

PATIENCE = 8


class Server(LegacyServer):
    """What is in `limited` is refused for `wait`; a second request before its time is noted."""

    limited, wait, asked = "", "", 0

    def on(self, connection, method, path, headers, body):
        if method == "POST" and json.loads(body).get("method") == self.limited:
            self.asked += 1
            return reply(connection, "the daily quota is used up", "text/plain", "429 Too Many Requests", {"retry-after": self.wait})
        return super().on(connection, method, path, headers, body)


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url)
    assert raincheck.modern("tools/list").status == 200
    failed = []
    # A short wait is waited for: the other side of the rule.
    server.limited, server.wait = "tools/call", "0"
    assert "429" in raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)["error"]["message"]
    assert server.asked > 1, server.asked
    for method, params in (("tools/list", {}), ("tools/call", {"name": "slow", "arguments": {}})):
        server.limited, server.wait, server.asked = method, "3600", 0
        began = time.monotonic()
        answer = raincheck.modern(method, params, tasks=False, seconds=PATIENCE)
        took = time.monotonic() - began
        if "error" not in answer.text:
            failed.append(f"{method}: no word of the limit within {took:.0f} s")
        elif "quota" not in answer.text or "3600 s" not in answer.text or server.asked != 1:
            failed.append(f"{method}: asked {server.asked} times: {answer.text}")
    assert not failed, "\n".join(failed)
