"""Area: stdio programs
Source: microsoft/azure-devops-mcp#147
Met: A server printed its version to standard output at the start, and clients that take each line for a message gave it up.
First try: pass
Verdict: Lines that are no message are skipped and told in the log, wherever they come: a banner, a log between messages, JavaScript's view of an object, an object
    that never closes, Windows line ends, a line of nine megabytes. The calls around them are answered on every transport.
"""

from servers import STDIO

NOISE = r'''
import os
def noise(text): os.write(1, text)
noise("\u250c\u2500 Welcome \u2500\u2510\r\n\r\n  v1.2.3 [ready]\r\n".encode())
'''
BETWEEN = r'''
        noise(b"{ port: 3000,\n  name: 'x' }\n")
        noise(b"[2026-01-01 10:00:00] INFO call\n[\n  1,\n  2\n]\n")
        noise(b"{\n")
        noise(b"\n \t\r\n")
        noise(b"Content-Length: 84\r\n\r\n")
        if message["method"] == "tools/call": noise(b"#" * 9_000_000 + b"\n")
        say('''


def test(field):
    program = field.write("noisy.py", NOISE + STDIO.replace("\n        say(", BETWEEN))
    raincheck = field.raincheck("--", "python3", program)
    session = raincheck.session()
    for run in range(2):
        assert session.call("slow", id=run)["result"]["content"][0]["text"] == "done"
        assert raincheck.modern("tools/call", {"name": "slow"}).answer(7)["result"]["content"][0]["text"] == "done"
    assert "v1.2.3 [ready]" in raincheck.log()
    pipe = field.stdio("--", "python3", program)
    assert "result" in pipe.hello()
    pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}})
    assert pipe.answer(1)["result"]["content"][0]["text"] == "done"
