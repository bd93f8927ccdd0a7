"""Area: clients
Source: MemPalace/mempalace#2229
Met: On Windows, a request with text outside ASCII could not be decoded by the program at the other end, which logged it and never answered it, so the client waited on that id.
First try: fail: a line that is not UTF-8 was answered under the id null, though the line shows its id, so the call was never answered
Verdict: Mended: a line that cannot be read is answered under the id that it shows.
"""

from servers import STDIO, LegacyServer, ModernServer


def test(field):
    program = field.write("server.py", STDIO)
    for upstream in (["--upstream", LegacyServer().url], ["--upstream", ModernServer().url], ["--", "python3", program]):
        pipe = field.stdio(*upstream)
        pipe.hello()
        for id, encoding in enumerate(("latin-1", "cp1252", "cp932"), 1):
            text = {"cp932": "\u65e5\u672c"}.get(encoding, "caf\xe9")
            line = f'{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"slow","arguments":{{"text":"{text}"}}}}}}\n'
            pipe.say(line.encode(encoding))
            answer = pipe.answer(id, 4)
            # An error that names the fault, or the call with replacement characters: but an answer.
            assert "result" in answer or answer["error"]["code"] in (-32700, -32600), answer
        pipe.say({"jsonrpc": "2.0", "id": 9, "method": "ping"})
        assert "result" in pipe.answer(9)
