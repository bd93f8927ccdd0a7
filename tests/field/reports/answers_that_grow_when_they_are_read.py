"""Area: security
Source: headroomlabs-ai/headroom#3284
Met: A body of a few megabytes in gzip became gigabytes when a proxy read it, because only its size on the wire was limited.
First try: pass
Verdict: What raincheck reads for itself (the answer to a call that becomes a task, lists) is limited by its size after it is decoded; the call fails with the reason, and the memory stays small. What a client sends coded is not read, and passes.
"""

import gzip
import re
import pathlib

from servers import LegacyServer, reply

SIZE = 600_000_000


class Server(LegacyServer):
    bomb = b""
    coding = "gzip"

    def write(self, connection, out, message, headers):
        if message["method"] == "tools/call" or (message["method"] == "tools/list" and "cursor" in message.get("params", {})):
            return reply(connection, self.bomb, headers={**headers, "content-encoding": self.coding})
        return super().write(connection, out, message, headers)


def test(field):
    Server.bomb = gzip.compress(b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"' + b"a" * SIZE + b'"}]}}', 1)
    server = Server()
    raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "50ms"\n')
    status = pathlib.Path(f"/proc/{raincheck.child.pid}/status")
    task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}).answer(7)["result"]["taskId"]
    ended = raincheck.finished(task)["result"]
    assert ended["status"] == "failed" and "larger than allowed" in ended["statusMessage"], ended
    plain = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}).answer(7)
    assert "larger than allowed" in plain["error"]["message"]
    listed = raincheck.modern("tools/list", {"cursor": "x"}).answer(7)
    assert "error" in listed
    sent = raincheck.http("POST", server.bomb, {"content-encoding": "gzip"})
    assert sent.status >= 400
    peak = int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) // 1024
    assert peak < 300, f"{peak} MiB"
    assert raincheck.child.poll() is None
