"""The official Python client without Tasks: python.py URL [MODE], MODE being one of mcp 2.x. Prints what it saw as JSON."""

import asyncio
import json
import sys

import mcp.types as types
from official import connect

seen = {"asked": [], "progress": []}


async def progress(_done, _total, message):
    seen["progress"].append(message)


async def elicit(_context, params):
    seen["asked"].append(params.message)
    return types.ElicitResult(action="accept", content={"confirm": True})


async def main():
    url, *mode = sys.argv[1:]
    async with connect(url, elicit, *mode) as client:
        seen["version"] = client.version
        seen["tools"] = await client.tools()
        seen["quick"] = await client.call("greet", {"name": "Ada"})
        seen["slow"] = await client.call("slow_compute", {"seconds": 1.5, "label": "plain"}, progress)
        seen["answered"] = await client.call("confirm_delete", {"filename": "a.txt"})
        seen["cancelled"] = await client.cancel("slow_compute", {"seconds": 60, "label": "cancel me"})
    print(json.dumps(seen))


asyncio.run(asyncio.wait_for(main(), 60))
