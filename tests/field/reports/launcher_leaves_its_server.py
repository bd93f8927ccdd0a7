"""Area: stdio programs
Source: eclipse-theia/theia#6587
Met: The end of a child process was taken for the end of its output, although another process that it had started still held the pipes and wrote.
First try: fail: a second after the launcher has ended with code 0, the server that it left with the pipes is killed, and its calls fail with `upstream_reset`; the
    official clients read on until the output ends
Verdict: Mended: where a process ends with code 0, and another holds its output, the line goes on until the output ends. Where it ends otherwise, its calls fail after a second as before.
"""

from servers import STDIO

FORK = "import os\nif os.fork(): os._exit(0)\n"


def test(field):
    server = field.write("server.py", STDIO)
    launchers = {
        "a shell that goes": ["sh", "-c", f"exec 3<&0; python3 '{server}' <&3 3<&- & exit 0"],
        "a fork": ["python3", field.write("forks.py", FORK + STDIO)],
    }
    faults = []
    for name, command in launchers.items():
        raincheck = field.raincheck("--", *command)
        answers = [raincheck.session().ask("tools/call", {"name": "slow", "arguments": {"s": 2}}), raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 1.8}})]
        faults += [f"{name}: {it.text[-250:]}" for it in answers if '"done"' not in it.text]
    assert not faults, faults
