"""Area: stdio programs
Source: NousResearch/hermes-agent#50169
Met: A host started a server process for each session and reconnect, waited for none of them, and after a day of use had dozens of dead and idle ones.
First try: pass
Verdict: Two hundred sessions, a hundred of them at once, have a process each; what ends is waited for, whichever way the session goes, descriptors come back, and when
    raincheck stops nothing is left.
"""

import concurrent.futures
import os
import pathlib

from house import until

# A server that costs little: a shell that answers by the text of the line.
PROGRAM = r'''#!/bin/sh
echo $$ >> pids
while IFS= read -r line; do
    case $line in *'"id":'*) ;; *) continue ;; esac
    id=${line#*'"id":'}; id=${id%%[,\}]*}
    case $line in
        *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
        *'"tools/list"'*) result='{"tools":[{"name":"pid","inputSchema":{"type":"object"}},{"name":"die","inputSchema":{"type":"object"}}]}' ;;
        *'"die"'*) kill -9 $$ ;;
        *) result='{"content":[{"type":"text","text":"'$$'"}]}' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
'''


def state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return None


def test(field):
    raincheck = field.raincheck("--", field.write("server.sh", PROGRAM, 0o755), config="[upstream]\nchildren_max = 128\n")
    parent, files = raincheck.child.pid, f"/proc/{raincheck.child.pid}/fd"
    raincheck.session().call("pid")
    before = len(os.listdir(files))
    pids = lambda: [int(pid) for pid in (field.dir / "pids").read_text().split()]
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        for _ in range(2):
            sessions = list(pool.map(lambda _: raincheck.session(), range(100)))
            said = list(pool.map(lambda session: session.call("pid")["result"]["content"][0]["text"], sessions))
            assert len(set(said)) == 100 and all(state(pid) for pid in said)

            def leave(pair):
                number, session = pair
                if number % 3:
                    assert raincheck.http("DELETE", headers=session.headers).status == 200
                else:
                    assert "error" in session.call("die")

            list(pool.map(leave, enumerate(sessions)))
            until("their processes are gone", lambda said=said: not any(state(pid) for pid in said), 15)
    assert not [pid for pid in pids() if (it := state(pid)) and it[0] == "Z"]
    until("descriptors come back", lambda: len(os.listdir(files)) <= before + 10, 10)
    assert raincheck.session().call("pid")["result"]["content"]
    raincheck.child.terminate()
    assert raincheck.child.wait(10) == 0
    until("nothing is left", lambda: not any(state(pid) for pid in pids()), 5)
    assert state(parent) is None
