"""The official Python client with a limit of its own on each call: the same job on standard input as for patience.mjs, mode
being one of mcp 2.x, or "openai-agents". Prints what became of each run as JSON."""

import asyncio
import json
import re
import sys
import time


async def companion(client, seen, job, _own):
    """Reads what it is told, as a model would, and calls the tool that it is told to call."""
    seen |= {"tools": await client.tools(), "called": [], "longest": 0}

    async def call(name, arguments):
        began = time.monotonic()
        said = await client.call(name, arguments, patience=job["patience"])
        seen["longest"] = max(seen["longest"], time.monotonic() - began)
        seen["called"].append(name)
        return said

    said = await call("slow_compute", {"seconds": job["seconds"], "label": "patience"})
    ticket = re.search(r"Ticket ([0-9a-f-]{36})", said)
    while ticket and (following := re.search(r"Call (\w+) with this ticket", said)):
        said = await call(following[1], {"ticket": ticket[1]})
    return said


async def alone(client, seen, job, _own):
    """Hears of progress all the time. No Python client's clock begins anew with it."""
    seen["progress"] = 0

    async def progress(*_):
        seen["progress"] += 1

    return await client.call("quiet_compute", {"seconds": job["seconds"]}, progress, job["patience"])


async def again(client, seen, job, own):
    """Asks for no progress, and makes the same call again each time that its clock ends, as a program or a model does."""
    tries = own.get("tries") or 2 * job["seconds"] // job["patience"] - 1
    arguments = {"seconds": own.get("seconds") or job["again_seconds"]}
    for seen["tries"] in range(1, int(tries) + 1):
        try:
            return await client.call("quiet_compute", arguments, None, job.get("patience"))
        except Exception as error:
            if "timed out" not in str(error).lower():
                raise
            seen["last"] = str(error)
    raise RuntimeError("no try got the result")


WAYS = {"companion": companion, "alone": alone, "again": again}


def connect(url, mode):
    if mode == "openai-agents":
        import openai_agents

        return openai_agents.connect(url)
    import official

    return official.connect(url, None, *([] if mode is None else [mode]))


async def go(job, way, url, mode=None, **own):
    seen = {}
    try:
        async with connect(url, mode) as client:
            seen["version"] = client.version
            # Whatever a client does before its first call is no part of that call's time.
            await client.call("greet", {"name": "Ada"})
            began = time.monotonic()
            try:
                seen["said"] = await WAYS[way](client, seen, job, own)
            except Exception as error:
                seen["gave_up"] = str(error)
            seen["took"] = time.monotonic() - began
    except Exception as error:
        seen.setdefault("gave_up", repr(error))
    return seen


async def main():
    job = json.load(sys.stdin)
    print(json.dumps(await asyncio.gather(*(go(job, **run) for run in job["runs"]))))


asyncio.run(main())
