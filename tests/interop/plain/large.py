"""Clients that refuse an event of more than 1 MiB, mcp 2.x and fastmcp 4: large.py URL auto|legacy. Prints how much they
heard of two mebibytes that take three seconds."""

import asyncio
import sys
from importlib.util import find_spec

ARGUMENTS = {"seconds": 3, "characters": 2 << 20}


async def main(url, mode):
    if find_spec("fastmcp"):
        from fastmcp import Client
    else:
        from mcp import Client
    async with Client(url, mode=mode) as client:
        result = await client.call_tool("large", ARGUMENTS)
    print(len(result.content[0].text))


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 50))
