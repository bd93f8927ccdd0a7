"""Area: deployment
Source: openebs/mayastor#1730
Met: Programs that listen on 0.0.0.0 cannot be reached in clusters with IPv6 addresses only, where the probes of the kubelet come by IPv6, too.
First try: pass
Verdict: Listeners, probes and the operators' listener take IPv6 addresses, `[::]` serves both families, the server may be at an
    IPv6 address, and Host headers with brackets are understood.
"""

import socket
import subprocess

import house
from house import free_port, http, until
from servers import LegacyServer


def test(field):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return
    server = LegacyServer("::1")
    probes, admin = free_port("::1"), free_port("::1")
    config = f'[admin]\nprobes = "[::1]:{probes}"\nlisten = "[::1]:{admin}"\n'
    raincheck = field.raincheck("--upstream", server.url, config=config, host="::1")
    assert raincheck.session().call("slow")["result"]["content"]
    assert raincheck.modern("tools/call", {"name": "slow"}).answer(7)["result"]["content"]
    until("it is ready", lambda: http(probes, "GET", path="/readyz", host="::1").status == 200)
    assert "raincheck_" in http(admin, "GET", path="/metrics", host="::1").text
    health = subprocess.run([house.RAINCHECK, "health", "--admin", f"[::1]:{admin}"], capture_output=True, text=True, timeout=10, check=False)
    assert health.returncode == 0, health.stderr
    assert raincheck.modern("server/discover", headers={"host": "[0:0:0:0:0:0:0:1]:80"}).status == 200
    assert raincheck.modern("server/discover", headers={"host": "[fe80::1]"}).status == 403

    both = field.raincheck("--upstream", server.url, env={"RAINCHECK_AUTH__ALLOW_ANONYMOUS": "true"}, host="::")
    for host, family in (("127.0.0.1", "IPv4"), ("::1", "IPv6")):
        assert house.http(both.port, "POST", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}}, host=host).status == 200, family
