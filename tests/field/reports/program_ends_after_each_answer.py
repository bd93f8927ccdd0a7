"""Area: stdio programs
Source: smart-mcp-proxy/mcpproxy-go#33
Met: Servers in containers answered one request and ended with code 0; behind a proxy that expects a lasting process every tool was gone after its first use.
First try: fail: the next call is written to the process that has just answered and is about to end; it fails with `upstream_reset` and effect `unknown`,
    although the process ended without reading it, so every second call of a client that calls at once is lost
Verdict: Mended: what is left in the pipe of a process that has ended was never read. It counts as not sent, and is sent to another process.
"""

from servers import STDIO

ONE = STDIO.replace("    if \"id\" in message", "    open('runs', 'a').write(message['method'] + '\\n')\n    if \"id\" in message")
ONE += "\n        if message['method'] == 'tools/call': sys.exit(0)\n"


def test(field):
    program = field.write("one.py", ONE)
    raincheck = field.raincheck("--", "python3", program)
    outcomes = [raincheck.modern("tools/call", {"name": "slow"}).answer(7) for _ in range(6)]
    ran = (field.dir / "runs").read_text().split().count("tools/call")
    assert ran <= 6, "a call ran twice"
    # An error must not claim that a call may have run which no process has read.
    lost = [it["error"]["data"]["io.raincheck/effect"] for it in outcomes if "error" in it]
    assert lost.count("unknown") <= ran - (6 - len(lost)), f"{ran} of 6 calls ran, and the answers say: {lost}"
    assert not lost, f"{len(lost)} of 6 calls were lost"
