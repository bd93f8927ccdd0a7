"""Area: stdio programs
Source: mark3labs/mcp-go#956
Met: A client that never read a server's standard error left the server stuck in a write after 64 KiB of log, and every later request ran into its timeout.
First try: pass
Verdict: Standard error is always read, also lines of megabytes and text without a line end, at the start and within calls; what is logged of it is bounded.
"""

from servers import STDIO

FLOOD = r'''
def flood(count):
    for number in range(count): sys.stderr.write("DEBUG line %d of a server that logs everything\n" % number)
    sys.stderr.write("#" * 3_000_000); sys.stderr.flush()
import sys
flood(60_000)
'''


def test(field):
    program = field.write("flood.py", FLOOD + STDIO.replace("    message = json.loads(line)\n", "    message = json.loads(line)\n    flood(2_000)\n"))
    raincheck = field.raincheck("--", "python3", program)
    session = raincheck.session()
    for id in range(5):
        assert session.call("slow", id=id)["result"]["content"][0]["text"] == "done"
    assert raincheck.modern("tools/call", {"name": "slow"}).answer(7)["result"]["content"][0]["text"] == "done"
    assert len(raincheck.log()) < 2_000_000
    raincheck.child.terminate()
    raincheck.child.wait(10)
    assert "more to its standard error than is logged" in raincheck.log()
    pipe = field.stdio("--", "python3", program)
    pipe.hello()
    pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}})
    assert pipe.answer(1)["result"]["content"][0]["text"] == "done"
