"""Area: deployment
Source: kubernetes/kubernetes#23404
Met: A secret made with `echo` has a line end; as a variable of the container it came with it, and people lost a day until they saw why nothing matched or connected.
First try: fail: a variable that ends with a line feed is refused for most settings, some with words that hide the cause ("cannot be part of a path or is easily
    guessed", "not a URL that can be wrapped"), while the same value from a file is taken without its line end; one error breaks into two lines
Verdict: Mended: a line end behind the value of a variable is no part of it, as in a file.
"""

import os
import subprocess
import time

import house
from house import free_port
from servers import LegacyServer


def test(field):
    server = LegacyServer()
    token = "0123456789abcdef0123456789abcdef"
    tokens = field.write("tokens", "ada: " + "ab" * 32 + "\n")
    values = {
        "RAINCHECK_UPSTREAM__URL": server.url,
        "RAINCHECK_UPSTREAM__HEADERS__AUTHORIZATION": "Bearer abc",
        "RAINCHECK_UPSTREAM__HEADERS__X_API_KEY": "abc",
        "RAINCHECK_STORE__SEAL_KEY": "5a" * 32,
        "RAINCHECK_ADMIN__TOKEN": token,
        "RAINCHECK_ADMIN__LISTEN": f"127.0.0.1:{free_port()}",
        "RAINCHECK_ADMIN__PROBES": f"127.0.0.1:{free_port()}",
        "RAINCHECK_DRAIN__TOKEN": token,
        "RAINCHECK_LISTEN__ADDRESS": f"127.0.0.1:{free_port()}",
        "RAINCHECK_LISTEN__ALLOWED_HOSTS": "tools.example.com",
        "RAINCHECK_TASKS__GRACE_WINDOW": "1s",
        "RAINCHECK_REPLICA__ID": "web-0",
        "RAINCHECK_AUTH__TOKENS_FILE": tokens,
        "RAINCHECK_TELEMETRY__ACCESS_LOG": "true",
        "RAINCHECK_STORE__URL": "memory:",
    }
    usual = {"PATH": os.environ["PATH"], "HOME": str(field.dir)}
    hidden = []
    for name in values:
        environment = usual | {key: value + "\n" * (key == name) for key, value in values.items()}
        child = field.start(house.RAINCHECK, "run", env=environment, log=name)
        log = field.dir / name
        end = time.monotonic() + 10
        while child.poll() is None and "serving address" not in log.read_text() and time.monotonic() < end:
            time.sleep(0.02)
        said = log.read_text().strip()
        if child.poll() is None:
            child.kill()
            child.wait()
        # A refusal that shows the line end is as good as one that takes it away.
        elif not any(word in said for word in ("\\n", "line", "white space", "whitespace", "control character")) or len(said.split("raincheck: ", 1)[-1].splitlines()) > 1:
            hidden.append(f"{name}: {said[-200:]}")
    path = field.write("authorization", "Bearer abc\r\n")
    as_file = usual | {key: value for key, value in values.items() if not key.endswith("AUTHORIZATION")} | {"RAINCHECK_UPSTREAM__HEADER_FILES__AUTHORIZATION": path}
    shown = subprocess.run([house.RAINCHECK, "config", "show"], env=as_file, capture_output=True, text=True, timeout=10, check=False)
    assert shown.returncode == 0, shown.stderr
    assert not hidden, "\n".join(hidden)
