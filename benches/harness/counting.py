"""Counts instructions with valgrind."""

import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time

from .processes import accepts, free_port

# What would make counts differ from run to run or from machine to machine:
# - jemalloc's background thread, and memory that it gives back after a time;
# - more than one worker, whose wake-ups depend on which is awake;
# - functions that the C library chooses by the processor (the string functions of AVX2 and later).
CALM = {
    "_RJEM_MALLOC_CONF": "background_thread:false,dirty_decay_ms:-1,muzzy_decay_ms:-1",
    "TOKIO_WORKER_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-ERMS",
}

# Instructions of all repetitions of a piece together. The allocator tidies up now and then: among few repetitions one time more
# or less would be seen.
REPEATED = 60_000_000
TRIAL = 100
START_SECONDS = 120


def piece(program, name, folder):
    """The instructions of one piece of work: the difference of N and 2N repetitions, which has no setup in it."""
    trial = difference(program, name, TRIAL, folder)
    return difference(program, name, int(REPEATED / trial), folder)


def difference(program, name, times, folder):
    once, twice = (repeated(program, name, repetitions, folder) for repetitions in (times, 2 * times))
    return (twice - once) / times


def repeated(program, name, times, folder):
    output = folder / f"{name}-{times}"
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", program, name, str(times)],
        env={**os.environ, **CALM},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if run.returncode != 0:
        sys.exit(f"error: {name}: {run.stdout}")
    return instructions(output)


def instructions(output):
    """The sum of a file of callgrind's."""
    found = re.search(r"^(?:summary|totals): (\d+)", output.read_text(), re.MULTILINE)
    return int(found.group(1))


class CountedServer:
    """raincheck under callgrind, with one client on one connection."""

    def __init__(self, processes, raincheck, upstream, env, name):
        self.output = processes.folder / f"callgrind-{name}"
        port = free_port()
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.output}", raincheck, "run"]
        command += ["--listen", f"127.0.0.1:{port}", "--upstream", upstream.url, "--store", "memory:"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RAINCHECK_")}
        # A slow machine must not lose its connection.
        environment["RAINCHECK_LIMITS__HEADER_TIMEOUT"] = "10m"
        environment["XDG_STATE_HOME"] = str(processes.folder / f"state-{name}")
        self.process = processes.start(name, command, env={**environment, **CALM, **env})
        last = time.monotonic() + START_SECONDS
        while not accepts(port):
            if self.process.poll() is not None or time.monotonic() > last:
                sys.exit(f"error: {name} did not start: {(processes.folder / f'{name}.log').read_text()}")
            time.sleep(0.1)
        upstream.settle = self.settle
        self.client = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.dumps = 0

    def dump(self):
        """The instructions since the last dump."""
        command = ["callgrind_control", "-d", str(self.process.pid)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        self.dumps += 1
        return instructions(self.output.with_name(f"{self.output.name}.{self.dumps}"))

    def settle(self):
        """Waits until every thread of the program sleeps, so that it has done all there is to do. Else the count of a request
        would depend on how soon the next one comes."""
        while any(state(self.process.pid, thread) != "S" for thread in os.listdir(f"/proc/{self.process.pid}/task")):
            time.sleep(0.0002)

    def request(self, request):
        """Sends a request, and reads the answer to its end."""
        self.settle()
        self.client.sendall(request)
        return whole(self.client)


def state(pid, thread):
    """The state of a thread, as a letter. A thread that has ended sleeps."""
    try:
        with open(f"/proc/{pid}/task/{thread}/stat") as stat:
            return stat.read().rpartition(") ")[2][0]
    except OSError:
        return "S"


def end_to_end(server, call):
    """The instructions of one request: the median of the windows. Timers that fire meanwhile disturb a few windows."""
    counts = []
    for window in range(WINDOWS + 1):
        for number in range(REQUESTS):
            # Ids of one length: longer ones would cost more.
            call(10_000 + window * REQUESTS + number)
        server.settle()
        counts.append(server.dump() / REQUESTS)
    # The first window has the start of the program in it.
    return statistics.median(counts[1:])


class Upstream:
    """A server that answers calls at once, in one write each."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/mcp"
        self.answered = threading.Semaphore(0)
        # What must be over before a call is answered.
        self.settle = lambda: None
        threading.Thread(target=self._accept, daemon=True).start()

    def await_call(self):
        """Waits until one more call was answered."""
        if not self.answered.acquire(timeout=60):
            sys.exit("error: raincheck did not call the server")

    def _accept(self):
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        while True:
            message = whole(connection)
            if message is None:
                return
            head, body = message
            result = b'{"resultType":"complete","tools":[],"ttlMs":3600000,"cacheScope":"public"}'
            is_call = b"tools/call" in head
            if is_call:
                result = b'{"resultType":"complete","content":[{"type":"text","text":"x"}],"isError":false}'
            elif b"server/discover" in head:
                result = DISCOVERED
            found = re.search(rb'"id":("[^"]*"|\d+)', body)
            answer = b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (found.group(1) if found else b"null", result)
            self.settle()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
            if is_call:
                self.answered.release()


DISCOVERED = b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":3600000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"counted","version":"1"}}}'


def whole(connection):
    """The next message with a Content-Length: its head and its body. None: the connection was closed."""
    data = b""
    while True:
        head, found, body = data.partition(b"\r\n\r\n")
        if found:
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            if len(body) >= int(length.group(1)):
                return head, body
        more = connection.recv(65536)
        if not more:
            return None
        data += more


def request(number, name, capabilities):
    """A `tools/call` as HTTP/1.1, in one piece."""
    body = (
        f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{name}","arguments":{{"nonce":"n{number}"}},'
        '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":'
        f'{{"name":"counted","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}'
    )
    head = (
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n"
        f"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\n\r\n"
    )
    return (head + body).encode()


def passed(processes, raincheck):
    """One call that passes, from its first byte in to its last byte out."""
    upstream = Upstream()
    server = CountedServer(processes, raincheck, upstream, {}, "passed-request")

    def call(number):
        answered(server, request(number, "fast", "{}"), b'"resultType":"complete"')
        upstream.await_call()

    return end_to_end(server, call)


def created(processes, raincheck):
    """One task: created in the memory store, called, and kept with its result."""
    upstream = Upstream()
    server = CountedServer(processes, raincheck, upstream, {"RAINCHECK_TASKS__MODE": "always"}, "created-task")

    def call(number):
        answered(server, request(number, "fast", DECLARES_TASKS), b'"resultType":"task"')
        # The next task comes when the call of this one was answered.
        upstream.await_call()

    return end_to_end(server, call)


def answered(server, message, wanted):
    answer = server.request(message)
    if answer is None or wanted not in answer[1]:
        sys.exit(f"error: raincheck answered {answer}")


WINDOWS = 12
REQUESTS = 50
DECLARES_TASKS = '{"extensions":{"io.modelcontextprotocol/tasks":{}}}'
