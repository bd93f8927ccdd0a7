"""mcp 2.x as a client without Tasks: mcp2.py URL legacy|auto. Prints what it saw as JSON."""

import asyncio
import json
import sys

import anyio
import mcp.types as types
from mcp import Client

seen = {"asked": [], "progress": []}


async def progress(_done, _total, message):
    seen["progress"].append(message)


async def elicit(_context, params):
    seen["asked"].append(params.message)
    return types.ElicitResult(action="accept", content={"confirm": True})


async def drive(client):
    seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]

    async def call(name, arguments, on_progress=None):
        result = await client.call_tool(name, arguments, progress_callback=on_progress)
        return result.content[0].text

    seen["quick"] = await call("greet", {"name": "Ada"})
    seen["slow"] = await call("slow_compute", {"seconds": 1.5, "label": "plain"}, progress)
    seen["answered"] = await call("confirm_delete", {"filename": "a.txt"})

    with anyio.CancelScope() as scope:

        async def started(*_):
            scope.cancel()

        await call("slow_compute", {"seconds": 60, "label": "cancel me"}, started)
    seen["cancelled"] = scope.cancelled_caught


async def main():
    url, mode = sys.argv[1:]
    async with Client(url, mode=mode, elicitation_callback=elicit) as client:
        seen["version"] = client.protocol_version
        await drive(client)
    print(json.dumps(seen))


asyncio.run(asyncio.wait_for(main(), 60))
