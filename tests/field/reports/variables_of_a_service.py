"""Area: deployment
Source: vmware-archive/gangway#176
Met: A Kubernetes Service with the program's own name put NAME_PORT=tcp://.. into every pod, the program took that for its port, and did not start.
First try: fail: it starts and serves, but for Services called raincheck-tools, raincheck-store-redis or raincheck-upstream-canary each of the kubelet's variables is
    told as a setting that is not read, with the advice to write RAINCHECK_STORE__REDIS_PORT_8440_TCP_ADDR; the true misspelling is lost among them
Verdict: Mended: variables of a Service are known by its own NAME_SERVICE_HOST, whatever the Service is called, and are left alone; misspelt settings are told as before.
"""

from servers import LegacyServer


def of_service(name, port):
    prefix, address = name.upper().replace("-", "_"), "10.96.0.17"
    url = f"tcp://{address}:{port}"
    return {
        f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(port), f"{prefix}_SERVICE_PORT_HTTP": str(port), f"{prefix}_PORT": url, f"{prefix}_PORT_{port}_TCP": url,
        f"{prefix}_PORT_{port}_TCP_ADDR": address, f"{prefix}_PORT_{port}_TCP_PORT": str(port), f"{prefix}_PORT_{port}_TCP_PROTO": "tcp",
    }


def test(field):
    environment = {"RAINCHECK_STORE_URL": "redis://127.0.0.1:1"}
    for name in ["raincheck", "raincheck-listen", "raincheck-store", "raincheck-upstream", "raincheck-admin", "raincheck-auth", "raincheck-tools", "raincheck-log", "raincheck-store-redis", "raincheck-upstream-canary"]:
        environment |= of_service(name, 8440)
    raincheck = field.raincheck("--upstream", LegacyServer().url, env=environment)
    assert raincheck.session().call("slow")["result"]["content"][0]["text"] == "run 1"
    assert "RAINCHECK_STORE_URL" in raincheck.log()
    noise = [name for name in environment if name in raincheck.log() and name != "RAINCHECK_STORE_URL"]
    assert not noise, noise
