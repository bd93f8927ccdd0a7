"""Area: clients
Source: n8n-io/n8n#23388
Met: A host opened a new session for every single call and never ended one; on servers with a process for each session, processes piled up until nothing worked any more.
First try: fail: the processes were bounded, but as soon as `children_max` sessions had been opened within a minute, the next client waited for `initialize`, until one of them was silent for a minute, as docs/servers.md says, or the wait of 30 s was over
Verdict: Mended for clients that listen, as the official libraries do: when all processes are in use, a session whose client has closed its stream makes room after 5 seconds of silence. One that never listened keeps its process for a minute, because it may hold what a user is doing.
"""

import socket
import time

from servers import STDIO, LegacyServer, ModernServer

MARKED = STDIO.replace("for line in sys.stdin:", "open(sys.argv[1] + str(__import__('os').getpid()), 'w').close()\nfor line in sys.stdin:")


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test(field):
    program = field.write("server.py", MARKED)
    for upstream in (["--upstream", LegacyServer().url], ["--upstream", ModernServer().url], ["--", "python3", program, str(field.dir / "pid-")]):
        raincheck = field.raincheck(*upstream, config=None if upstream[0] == "--upstream" else "[upstream]\nchildren_max = 4\n")
        for execution in range(10):
            begun = time.monotonic()
            params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "n8n", "version": "1"}}
            first = raincheck.http("POST", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, seconds=8)
            assert first.status == 200, f"{upstream[0]}: execution {execution}: no answer to initialize after {time.monotonic() - begun:.0f} s"
            head = {"mcp-session-id": first.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
            raincheck.http("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"}, head)
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}}
            # The official libraries listen for as long as they live.
            with socket.create_connection(("127.0.0.1", raincheck.port)) as listening:
                lines = [f"{name}: {value}" for name, value in {"host": "127.0.0.1", "accept": "text/event-stream", **head}.items()]
                listening.sendall("\r\n".join(["GET /mcp HTTP/1.1", *lines, "", ""]).encode())
                assert b"HTTP/1.1" in listening.recv(100)
                assert raincheck.http("POST", call, head, seconds=8).answer(1)["result"]["content"]
            running = sum(alive(int(path.name[4:])) for path in field.dir.glob("pid-*"))
            assert running <= 5, running
