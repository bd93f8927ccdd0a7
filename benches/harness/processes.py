"""Processes that are started here and ended here, by their pids."""

import random
import signal
import socket
import subprocess
import sys
import time

# How long a server may take until it accepts connections, and how long it may take to end.
START_SECONDS = 60
END_SECONDS = 10


class Processes:
    """Everything that was started. Leaving the `with` block ends it, whatever happened inside."""

    def __init__(self, folder):
        self.folder = folder
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(*reversed(self.running))

    def start(self, name, command, port=None, env=None):
        """Starts a server, and waits until it accepts connections at `port`. Its output is in FOLDER/NAME.log."""
        log = self.folder / f"{name}.log"
        with open(log, "ab") as output:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                # Ctrl-C is for this program, which then ends the others in order.
                start_new_session=True,
            )
        self.running.append(process)
        if port is not None:
            self._await_port(name, process, port, log)
        return process

    def _await_port(self, name, process, port, log):
        last = time.monotonic() + START_SECONDS
        while not accepts(port):
            if process.poll() is not None or time.monotonic() > last:
                told = log.read_text(errors="replace")[-2000:]
                sys.exit(f"error: {name} does not listen on port {port}:\n{told}")
            time.sleep(0.02)

    def end(self, *processes):
        """Asks the processes to end, and ends those that do not."""
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        last = time.monotonic() + END_SECONDS
        for process in processes:
            try:
                process.wait(max(0, last - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.running.remove(process)


def accepts(port):
    """Whether something accepts connections at a port of this machine."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def free_port():
    """A free port below those that the kernel gives to outgoing connections."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def resident_kib(pid):
    """The resident memory of a process and its descendants."""
    total, left = 0, [pid]
    while left:
        own = left.pop()
        try:
            with open(f"/proc/{own}/task/{own}/children") as children:
                left += children.read().split()
            with open(f"/proc/{own}/status") as status:
                lines = [line for line in status if line.startswith("VmRSS:")]
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines)
    return total
