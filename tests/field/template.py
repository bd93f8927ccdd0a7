"""Area: servers
Source: owner/repository#123
Met: What people met, in one sentence of your own.
First try: pass
Verdict: What raincheck does, and why that is right. After "fail: what it did at the first try", also what was mended.
"""

from servers import LegacyServer


class Server(LegacyServer):
    """What is special about the server of the report."""


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url)
    assert raincheck.session().call("slow")["result"]["content"][0]["text"] == "run 1"
    task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 3}}).answer(7)
    assert raincheck.finished(task["result"]["taskId"])["result"]["status"] == "completed"
