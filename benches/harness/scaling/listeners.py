"""With open streams of `subscriptions/listen`: memory, and the CPU of a change."""

import selectors
import time

from .client import Client
from .fleet import Fleet, memory_kib

# Changes that one listener sees, and changes that all see. A change is the end of a task, which its client cancels.
ONE = 100
ALL = 3
PATIENCE_SECONDS = 120


def measure(targets, counts, seconds):
    """A row for each number of listeners."""
    for count in counts:
        with Fleet(targets, f"listeners-{count}", {"limits.connections": "100000"}) as fleet:
            replica = fleet.start()
            row = {"listeners": count}
            streams = []
            try:
                row |= listen(fleet, replica, count, streams, seconds)
            finally:
                for stream in streams:
                    stream.close()
            yield row


def listen(fleet, replica, count, streams, seconds):
    client = Client(replica.port)
    shared = [client.create("slow", ms=600_000) for _ in range(ALL)]
    step = max(1, count // ONE)
    own = [client.create(*(["slow"] if number % step == 0 else ["fast"]), ms=600_000) for number in range(count)]
    client.close()
    base_kib = memory_kib(replica)
    with selectors.DefaultSelector() as selector:
        for task in own:
            stream = Client(replica.port)
            stream.send("subscriptions/listen", {"notifications": {"taskIds": [task, *shared]}})
            streams.append(stream)
            selector.register(stream.connection, selectors.EVENT_READ, stream)
        # The acknowledgement, and the present state of each task.
        hear(selector, streams, lambda stream: stream.unread.count(b"\ndata:") + stream.unread.count(b"\r\ndata:") >= 2 + ALL)
        time.sleep(2)
        drain(selector)
        open_kib = memory_kib(replica)
        before = fleet.use()
        time.sleep(max(seconds, 5))
        used = fleet.use().since(before)
        row = {"kib": round((open_kib - base_kib) / count, 1), "idle_us": round(used.replicas_us / used.when)}
        # raincheck closes connections that were idle for long.
        client = Client(replica.port)
        changed = list(range(0, count, step))[:ONE]
        row |= change(fleet, "one", selector, [(client, own[at], [streams[at]]) for at in changed])
        row |= change(fleet, "all", selector, [(client, task, streams) for task in shared])
        client.close()
    return row


def change(fleet, name, selector, changes):
    """The CPU and the time of a change, from its cancel until the last listener has heard of it."""
    drain(selector)
    before = fleet.use()
    for client, task, listeners in changes:
        client.cancel(task)
        hear(selector, listeners, lambda stream, task=task: heard_of(stream, task))
        for stream in listeners:
            stream.unread = b""
    used = fleet.use().since(before)
    row = {f"{name}_us": round(used.replicas_us / len(changes)), f"{name}_redis_us": round(used.redis_us / len(changes))}
    return row | {f"{name}_ms": round(used.when * 1000 / len(changes), 1)}


def heard_of(stream, task):
    return b"cancelled" in stream.unread and task.encode() in stream.unread


def hear(selector, listeners, is_done):
    """Reads until each of these listeners is done."""
    left = {id(stream) for stream in listeners}
    last = time.monotonic() + PATIENCE_SECONDS
    while left:
        if time.monotonic() > last:
            raise RuntimeError(f"{len(left)} of {len(listeners)} listeners did not hear what they must")
        for key, _ in selector.select(1):
            key.data.read()
            if id(key.data) in left and is_done(key.data):
                left.remove(id(key.data))


def drain(selector):
    """Reads what has come, and forgets it."""
    while ready := selector.select(0.2):
        for key, _ in ready:
            key.data.read()
            key.data.unread = b""
    for key in selector.get_map().values():
        key.data.unread = b""
