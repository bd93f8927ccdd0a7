"""Area: servers
Source: twentyhq/twenty#19528
Met: A server tells its progress once, before it begins to work, so that clients know that this takes a while, and says nothing more until the result.
First try: fail: what the server tells within the grace window, before the call is a task, is in no `statusMessage`: the task shows nothing until the next progress, although
docs/concepts.md says that the latest progress of the tool is the status message. Told after the window, it is there.
Verdict: Mended: what the server says before there is a task is what its first polls show.
"""

import time

from house import until
from servers import LegacyServer, content, event

HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
SAID = "imports 4000 records, about a minute"


class Server(LegacyServer):
    """Says what it does at once, or `d` seconds after the call came."""

    def write(self, connection, out, message, headers):
        if message["method"] != "tools/call":
            return super().write(connection, out, message, headers)
        arguments = message["params"]["arguments"]
        params = {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 0, "total": 1, "message": SAID}
        time.sleep(arguments["d"])
        connection.sendall((HEAD + event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})).encode())
        time.sleep(2.5)
        connection.sendall(event({"jsonrpc": "2.0", "id": message["id"], "result": content("done")}).encode())
        return False

    def tool(self, message, connection, headers):
        return {}


def test(field):
    failed = []
    raincheck = field.raincheck("--upstream", Server().url, config='[tasks]\ngrace_window = "300ms"\npoll_hold = "0s"\n')
    for late in (0.6, 0):
        for meta in ({}, {"progressToken": "mine"}):
            task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"d": late}}, meta=meta).answer(7)["result"]["taskId"]
            try:
                until("its words in the task", lambda task=task: SAID in raincheck.modern("tasks/get", {"taskId": task}).text, 1.5)
            except AssertionError:
                status = raincheck.modern("tasks/get", {"taskId": task}).answer(7)["result"]
                failed.append(f"told after {late} s, {meta}: {status['status']}, {status.get('statusMessage')}")
    assert not failed, "\n".join(failed)
