"""With tasks that a client of 2025-11-25 can list: a page of `tasks/list`."""

import json

from .client import Client
from .fleet import Fleet
from .kept import fill, median_ms

TOKEN = "Authorization: Bearer lister"
VERSION = "2025-11-25"


def measure(targets, counts, say):
    """A row for each number of tasks in the list of one caller."""
    with Fleet(targets, "listed") as fleet:
        replica = fleet.start()
        kept = 0
        for count in counts:
            kept += fill(fleet, replica, count - kept, say, "--wire", "legacy", "--header", TOKEN)
            lister = Lister(replica.port)
            before = fleet.use()
            first = median_ms(lister.first)
            last = median_ms(lister.second)
            used = fleet.use().since(before)
            yield {"listed": kept, "first_ms": first, "second_ms": last, "redis_us": round(used.redis_us / 10), "raincheck_us": round(used.replicas_us / 10)}
            lister.client.close()


class Lister:
    """A client with a session that lists its tasks."""

    def __init__(self, port):
        self.client = Client(port, [TOKEN])
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "scale", "version": "1"}}
        head, _ = self.ask("initialize", hello, ())
        session = [line for line in head.decode().split("\r\n") if line.lower().startswith("mcp-session-id:")]
        self.headers = [f"MCP-Protocol-Version: {VERSION}", *session]
        self.client.post(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}), self.headers)
        self.client.answer()
        self.cursor = None

    def ask(self, method, params, headers):
        self.client.post(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}), headers)
        return self.client.answer()

    def page(self, params):
        answer = json.loads(self.ask("tasks/list", params, self.headers)[1])
        result = answer.get("result")
        if result is None:
            raise RuntimeError(f"raincheck answered {answer}")
        return result

    def first(self):
        self.cursor = self.page({}).get("nextCursor")

    def second(self):
        if self.cursor:
            self.page({"cursor": self.cursor})
