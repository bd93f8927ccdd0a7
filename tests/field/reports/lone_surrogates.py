"""Area: clients
Source: microsoft/playwright-mcp#1410
Met: Text that was cut in the middle of an emoji, in a tool's result, made every later request of the client invalid JSON, and the conversation could not go on.
First try: pass
Verdict: Half of a pair in arguments reaches the server as it is; in a result it becomes U+FFFD wherever raincheck reads the result, so a client that reads strictly gets
    valid JSON. A call that passes unread keeps it. Emoji and other signs are left alone.
"""

import json

from servers import STDIO, LegacyServer, ModernServer, content

HALF = '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow","arguments":{"text":"\\ud83d cut"}}}'


class Legacy(LegacyServer):
    def tool(self, message, connection, headers):
        text = message["params"]["arguments"]["text"]
        return content(f"{ascii(text)} \U0001f600 \u2028 {text[:1]}")


class Modern(ModernServer):
    tool = Legacy.tool


def test(field):
    program = field.write("server.py", STDIO.replace('"text": "done"', '"text": ascii(message["params"]["arguments"]["text"]) + " \\U0001f600 \\u2028 " + message["params"]["arguments"]["text"][:1]'))
    for upstream in (["--upstream", Legacy().url], ["--upstream", Modern().url], ["--", "python3", program]):
        raincheck, pipe = field.raincheck(*upstream), field.stdio(*upstream)
        text = raincheck.session().say((HALF % 1).encode()).answer(1)["result"]["content"][0]["text"]
        assert "'\\ud83d cut' \U0001f600 \u2028 " in text, text.encode("utf8", "surrogatepass")
        # What raincheck carries is mended.
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"text": "\ud83d cut"}})
        text = task.answer(7)["result"]["content"][0]["text"]
        assert "'\\ud83d cut' \U0001f600 \u2028 " in text, text.encode("utf8", "surrogatepass")
        json.dumps(text, ensure_ascii=False).encode()
        pipe.hello()
        pipe.say((HALF % 5).encode() + b"\n")
        text = pipe.answer(5)["result"]["content"][0]["text"]
        assert "'\\ud83d cut' \U0001f600 \u2028 " in text
        json.dumps(text, ensure_ascii=False).encode()
