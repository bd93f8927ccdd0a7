"""Area: stdio programs
Source: ihor-sokoliuk/mcp-searxng#60
Met: When a session of a desktop client ended, its signal reached npx and no further, and the real server ran on: a thousand of them after two weeks.
First try: fail: after SIGTERM `raincheck stdio` ends with code 0 two seconds later, at the very moment when it would signal the program: behind a wrapper servers are left
    running, some of those that heed SIGTERM and most of those that do not
Verdict: Mended: what is left of the server's processes gets SIGTERM and SIGKILL before raincheck ends.
"""

import os
import pathlib
import signal

from house import until

# A shell that answers by the text of the line, and stays when its input ends.
SERVER = r'''#!/bin/sh
{trap}
echo $$ >> pids
while IFS= read -r line; do
    case $line in *'"id":'*) ;; *) continue ;; esac
    id=${line#*'"id":'}; id=${id%%[,\}]*}
    case $line in
        *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
        *'"tools/list"'*) result='{"tools":[{"name":"pid","inputSchema":{"type":"object"}}]}' ;;
        *) result='{"content":[{"type":"text","text":"done"}]}' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
exec sleep 600
'''


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test(field):
    left = {}
    pids = field.dir / "pids"
    started = lambda: [int(pid) for pid in pids.read_text().split()]
    for kind, trap in {"heeds SIGTERM": "", "ignores SIGTERM": "trap '' TERM INT"}.items():
        server = field.write("server.sh", SERVER.replace("{trap}", trap), 0o755)
        wrapper = field.write("npx", f"#!/bin/sh\n{trap}\n'{server}'\necho ended >&2\n", 0o755)
        for way in ["SIGTERM", "SIGINT", "end of input"]:
            pids.write_text("")
            pipes = [field.stdio("--", wrapper) for _ in range(8)]
            for pipe in pipes:
                pipe.hello()
                pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pid", "arguments": {}}})
                pipe.answer(1)
            for pipe in pipes:
                if way == "end of input":
                    pipe.child.stdin.close()
                else:
                    pipe.child.send_signal(getattr(signal, way))
            codes = [pipe.child.wait(15) for pipe in pipes]
            assert codes == [0] * 8, codes
            try:
                until("nothing is left", lambda: not any(map(alive, started())), 2)
            except AssertionError:
                left[f"{kind}, {way}"] = sum(map(alive, started()))
            finally:
                for pid in filter(alive, started()):
                    os.kill(pid, signal.SIGKILL)
    assert not left, f"servers that were left behind, of 8 each time: {left}"
