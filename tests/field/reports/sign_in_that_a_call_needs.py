"""Area: clients
Source: danny-avila/LibreChat#13267
Met: A gateway of 2025-11-25 answered calls with -32042 and an address where the user has to sign in first; hosts showed an error without the address, so nobody could.
First try: fail: a client of 2026-07-28, also one that declares questions with an address, got -32603 "The server asks for a visit to a URL, which this client does not do": not true of that client, and without the server's own words, which a host shows its model
Verdict: Mended: the message of the error has the server's own words and the addresses, and its data the whole error.
"""

import json

from servers import STDIO, LegacyServer

NEEDED = {"code": -32042, "message": "Sign in at LinkedIn first", "data": {"elicitations": [{"mode": "url", "url": "https://example.com/consent?id=1", "elicitationId": "e1", "message": "Sign in"}]}}


class Gateway(LegacyServer):
    """Refuses until its user has signed in, which it learns elsewhere."""

    version, signed_in = "2025-11-25", False

    def write(self, connection, out, message, headers):
        if message["method"] == "tools/call" and not self.signed_in:
            out = {"jsonrpc": "2.0", "id": out["id"], "error": NEEDED}
        super().write(connection, out, message, headers)


PROGRAM = f"NEEDED = {NEEDED!r}\n" + STDIO.replace(
    '        say({"jsonrpc": "2.0", "id": message["id"], "result": result(message)})',
    '        say({"jsonrpc": "2.0", "id": message["id"], **({"error": NEEDED} if message["method"] == "tools/call" else {"result": result(message)})})',
)


def test(field):
    program = field.write("server.py", PROGRAM)
    wrong = []
    for upstream in (["--upstream", Gateway().url], ["--", "python3", program]):
        raincheck = field.raincheck(*upstream)
        # A legacy client gets the error of its revision.
        assert raincheck.session(capabilities={"elicitation": {"url": {}}}).call("slow")["error"] == NEEDED
        for capabilities in ({"elicitation": {"form": {}, "url": {}}}, {}):
            for tasks in (True, False):
                answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, capabilities=capabilities, tasks=tasks).answer(7)
                if "taskId" in answer.get("result", {}):
                    answer = raincheck.finished(answer["result"]["taskId"], capabilities=capabilities)
                text = json.dumps(answer)
                assert NEEDED["data"]["elicitations"][0]["url"] in text, f"the address is lost: {text}"
                if "error" in answer:
                    message = answer["error"]["message"]
                    if NEEDED["message"] not in message:
                        wrong.append(f"{upstream[0]}, {capabilities}, tasks {tasks}: the server's words are lost: {message}")
                    if "url" in capabilities.get("elicitation", {}) and "this client does not" in message:
                        wrong.append(f"{upstream[0]}, {capabilities}, tasks {tasks}: it says what is not true: {message}")
    assert not wrong, "\n".join(wrong)
