"""Area: servers
Source: lynnswap/XcodeMCPKit#205
Met: Servers answer with errors whose code is no integer, and a client that takes the code for an integer breaks on them.
First try: fail: an error whose code is a string, a fraction or missing reaches a modern client as "The server answered with a malformed error", without the server's own
words, which docs/errors.md promises to pass on; and an error without a message, or with null or an object for it, goes into answers and tasks as it is, where no official
client can read the whole answer (`message` is a required string), so that its poll of the task fails for ever.
Verdict: Mended: an error without a whole number as its code or without a text as its message reaches clients as -32603 with the server's words in its message and the whole
error in its data, in calls and tasks.
"""

import json

from servers import LegacyServer, event, reply

ERRORS = {
    "string code": {"code": "E_QUOTA", "message": "the quota is used up"},
    "fraction": {"code": -32000.0, "message": "the quota is used up"},
    "large": {"code": 1e100, "message": "the quota is used up"},
    "no code": {"message": "the quota is used up"},
    "text": "the quota is used up",
    "no message": {"code": -32000, "data": "the quota is used up"},
    "null message": {"code": -32000, "message": None, "data": "the quota is used up"},
    "object": {"code": -32000, "message": {"text": "the quota is used up"}},
}


class Server(LegacyServer):
    def tool(self, message, connection, headers):
        super().tool(message, connection, headers)
        error = ERRORS[message["params"]["name"]]
        reply(connection, event({"jsonrpc": "2.0", "id": message["id"], "error": error}), "text/event-stream", headers={"connection": "close"})
        return False


def fault(error):
    """What is wrong with an error that a client gets."""
    if not isinstance(error, dict) or not isinstance(error.get("code"), int) or not isinstance(error.get("message"), str):
        return f"no client can read {error}"
    return None if "the quota is used up" in json.dumps(error) else f"the server's words are lost: {error}"


def test(field):
    raincheck = field.raincheck("--upstream", Server().url, config='[tasks]\ngrace_window = "150ms"\n')
    failed = []
    for name in ERRORS:
        plain = raincheck.modern("tools/call", {"name": name, "arguments": {}}, tasks=False).answer(7)["error"]
        task = raincheck.modern("tools/call", {"name": name, "arguments": {"s": 0.3}}).answer(7)
        ended = raincheck.finished(task["result"]["taskId"])["result"]
        assert ended["status"] == "failed", ended
        for where, error in (("call", plain), ("task", ended["error"])):
            if wrong := fault(error):
                failed.append(f"{name}, {where}: {wrong}")
    assert not failed, "\n".join(failed)
