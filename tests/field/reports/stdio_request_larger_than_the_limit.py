"""Area: clients
Source: punkpeye/mcp-remote#308
Met: A bridge on standard input could not forward a request and only logged that, so the host showed a tool call that hung until its own limit.
First try: fail: a line above `limits.body_bytes_max` was answered under the id null, so the call was never answered; over HTTP the same call is refused at once (413)
Verdict: Mended: a line that is too long is answered under the id of its request, which is looked for at the begin and at the end of the line.
"""

from servers import STDIO, LegacyServer, ModernServer


def test(field):
    program = field.write("server.py", STDIO)
    for upstream in (["--", "python3", program], ["--upstream", LegacyServer().url], ["--upstream", ModernServer().url]):
        pipe = field.stdio(*upstream)
        pipe.hello()
        # The members of a request come in any order, so its id is at the begin or at the end of the line.
        image = b"A" * 5_000_000
        pipe.say(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"image":"' + image + b'"}}}\n')
        answer = pipe.answer(1, 6)
        assert "result" in answer or "large" in answer["error"]["message"] or "long" in answer["error"]["message"], answer
        pipe.say(b'{"method":"tools/call","params":{"name":"slow","arguments":{"image":"' + image + b'"}},"jsonrpc":"2.0","id":2}\n')
        answer = pipe.answer(2, 6)
        pipe.say({"jsonrpc": "2.0", "id": 3, "method": "ping"})
        assert "result" in pipe.answer(3)
