"""Area: security
Source: hyperium/hyper#2457
Met: Clients opened connections and said nothing, or a header or a byte of the body now and then, and held every connection of the server.
First try: pass
Verdict: A connection without a whole head ends after 10 seconds however busy it is, one without a whole body after 30 with 408, and others are served meanwhile.
"""

import threading
import time

from house import socket
from servers import LegacyServer


def test(field):
    server = LegacyServer()
    raincheck = field.raincheck("--upstream", server.url, config="[limits]\nconnections = 24\n")
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{raincheck.port}\r\nContent-Type: application/json\r\n".encode()
    lasted, lock = {}, threading.Lock()

    def say(kind):
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", raincheck.port), 5) as connection:
            connection.settimeout(0.3)
            answer = b""
            try:
                connection.sendall({"silent": b"", "head": head, "body": head + b"Content-Length: 100000\r\n\r\n"}[kind])
                while time.monotonic() - begun < 14:
                    if kind != "silent":
                        connection.sendall(b"X-A: b\r\n" if kind == "head" else b" ")
                    try:
                        answer = connection.recv(100)
                        break
                    except TimeoutError:
                        pass
            except OSError:
                pass
        with lock:
            lasted.setdefault(kind, []).append((time.monotonic() - begun, answer))

    threads = [threading.Thread(target=say, args=(kind,)) for kind in ("silent", "head", "body") for _ in range(12)]
    for thread in threads:
        thread.start()
    # 36 slow clients at a limit of 24 connections: whoever says a whole request has an answer at once.
    for _ in range(10):
        begun = time.monotonic()
        assert raincheck.session().call("slow")["result"]["content"]
        assert time.monotonic() - begun < 4
        time.sleep(0.3)
    for thread in threads:
        thread.join()
    for kind in ("silent", "head"):
        assert max(seconds for seconds, _ in lasted[kind]) < 12, lasted[kind]
