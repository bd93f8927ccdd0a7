"""Area: Redis
Source: binarymatt/pyres#121
Met: Redis was emptied (a flush, or a restart without a file) while workers ran; they went on, but what they had registered at their start stood nowhere any more, so they and later ones did not know of each other.
First try: fail: the running replica keeps the key of callers that Redis lost and writes it nowhere; a replica that starts later makes another key, and from then on each replica says "Task not found" of its clients' tasks at the other, without a line in any log, until all are started again.
Verdict: Mended: a replica that runs writes what Redis lost again with its next heartbeat, a second later. If a replica starts within this second, it makes another key of callers, and the logs of the others say that they must be started again.
"""

import subprocess

from house import until
from servers import LegacyServer


def test(field):
    server = LegacyServer()
    port = field.redis()
    settings = '[store]\nnamespace = "n"\n[tasks]\ngrace_window = "50ms"\n[replica]\nid = "%s"\n'
    store, mine = f"redis://127.0.0.1:{port}", {"authorization": "Bearer mine"}
    one = field.raincheck("--upstream", server.url, store=store, config=settings % "one")
    call = lambda raincheck: raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.3}}, headers=mine).answer(7)["result"]["taskId"]
    one.finished(call(one), headers=mine)
    subprocess.run(["redis-cli", "-p", str(port), "flushall"], stdout=subprocess.DEVNULL, check=True)
    # What was there is lost. Tasks of now are everybody's again, whichever replica a client meets.
    # A replica that runs tells those that start later.
    until("the key is there again", lambda: "caller_key" in subprocess.run(["redis-cli", "-p", str(port), "hkeys", "{n:meta}"], capture_output=True, text=True, check=True).stdout, 5)
    before = call(one)
    one.finished(before, headers=mine)
    two = field.raincheck("--upstream", server.url, store=store, config=settings % "two")
    after = call(two)
    two.finished(after, headers=mine)
    for raincheck, task in ((one, before), (two, before), (one, after), (two, after)):
        answer = raincheck.modern("tasks/get", {"taskId": task}, headers=mine).answer(7)
        assert answer.get("result", {}).get("status") == "completed", f"{'one' if raincheck is one else 'two'}: {answer}"
