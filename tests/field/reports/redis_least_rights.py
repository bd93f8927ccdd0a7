"""Area: Redis
Source: sidekiq/sidekiq#5353
Met: Operators wanted a user of Redis with the least rights and asked which these are; the projects said "all but the dangerous ones, I think", and INFO was one of these.
First try: fail: with the documented rights and a URL with a database (`/5`, on the same page) raincheck ends: the user may not SELECT, which "all that raincheck needs" leaves out and no line advises.
Verdict: Mended: the documents name every command and the keys, and +select besides for a URL with a database; a user without it is told so. With exactly these rights everything works, sessions, tasks, cancels and a second replica, and Redis's own log of refusals has only CONFIG GET, which the start asks for its advice about the file, and does without.
"""

import pathlib
import re
import subprocess

import house
from house import until
from servers import LegacyServer

DOCUMENT = pathlib.Path(house.__file__).parents[2] / "docs/operations.md"


def test(field):
    server = LegacyServer()
    port = field.redis()

    def redis(*words):
        return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True, check=True).stdout

    line = re.search(r"^ACL SETUSER raincheck .*$", DOCUMENT.read_text(), re.M)[0]
    redis(*line.replace("PASSWORD", "pw").replace("my-service", "least").split())
    redis("acl", "log", "reset")
    settings = '[store]\nnamespace = "least"\nseal_key = "' + "5a" * 32 + '"\n[tasks]\ngrace_window = "50ms"\n[replica]\nid = "%s"\n'
    store = f"redis://raincheck:pw@127.0.0.1:{port}"
    one = field.raincheck("--upstream", server.url, store=store, config=settings % "one")
    two = field.raincheck("--upstream", server.url, store=store, config=settings % "two")
    assert one.session().call("slow")["result"]["content"]
    companion = one.session(name="claude-code")
    companion.ask("tools/list")
    assert companion.call("slow", {"s": 0.3}, id=3)
    for first, second in ((one, two), (two, one)):
        task = first.modern("tools/call", {"name": "slow", "arguments": {"s": 0.5}}).answer(7)["result"]["taskId"]
        assert second.finished(task)["result"]["status"] == "completed"
        task = first.modern("tools/call", {"name": "slow", "arguments": {"s": 20}}).answer(7)["result"]["taskId"]
        second.modern("tasks/cancel", {"taskId": task})
        assert first.finished(task)["result"]["status"] == "cancelled"
    for raincheck in (one, two):
        raincheck.child.terminate()
        raincheck.child.wait(15)
        assert "NOPERM" not in raincheck.log()
    denied = redis("acl", "log").splitlines()
    refused = {denied[at + 1] for at, word in enumerate(denied) if word == "object"}
    assert refused <= {"config|get", "config"}, refused
    # Another database, `redis://.../5`, needs one right more: the same page has it, and the start names it.
    assert "`+select`, for a URL with a database" in DOCUMENT.read_text()
    refused = field.raincheck("--upstream", server.url, store=f"{store}/5", config=settings % "four", ready=False)
    until("it ends", lambda: refused.child.poll() is not None)
    assert "+select" in refused.log(), refused.log()
    redis("acl", "setuser", "raincheck", "+select")
    field.raincheck("--upstream", server.url, store=f"{store}/5", config=settings % "four")
    # The usual user of rented Redis: all but what is dangerous. INFO is dangerous by Redis's own list, and not needed.
    redis("acl", "setuser", "rented", "on", ">pw", "~*", "+@all", "-@dangerous", "-@admin")
    three = field.raincheck("--upstream", server.url, store=f"redis://rented:pw@127.0.0.1:{port}", config=settings % "three")
    task = three.modern("tools/call", {"name": "slow", "arguments": {"s": 0.3}}).answer(7)["result"]["taskId"]
    assert three.finished(task)["result"]["status"] == "completed"
