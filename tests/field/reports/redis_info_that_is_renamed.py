"""Area: Redis
Source: envoyproxy/envoy#38517
Met: A proxy or a hardened Redis did not know INFO, and clients that asked it first could not use a Redis that was good otherwise.
First try: fail: with INFO forbidden by an access list raincheck starts with a warning, but with INFO unknown (renamed away, or behind a proxy) it ends: "cannot be reached or refuses us".
Verdict: Mended: an INFO that nobody can run is a warning, as one that is denied.
"""

import subprocess

from servers import LegacyServer


def test(field):
    server = LegacyServer()
    settings = '[store]\nnamespace = "n"\n[tasks]\ngrace_window = "50ms"\n'
    denied = field.redis()
    user = ["acl", "setuser", "raincheck", "on", ">pw", "~*", "+@all", "-info"]
    subprocess.run(["redis-cli", "-p", str(denied), *user], stdout=subprocess.DEVNULL, check=True)
    unknown = field.redis("--rename-command", "INFO", "")
    for url in (f"redis://raincheck:pw@127.0.0.1:{denied}", f"redis://127.0.0.1:{unknown}"):
        raincheck = field.raincheck("--upstream", server.url, store=url, config=settings)
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.3}}).answer(7)["result"]["taskId"]
        assert raincheck.finished(task)["result"]["status"] == "completed"
        assert "version and eviction policy were not checked" in raincheck.log()
