"""A Python client in its default settings calls a tool that says nothing: defaults.py URL SECONDS [MODE]. Prints what the
tool said."""

import asyncio
import sys
from importlib.util import find_spec

url, seconds, *mode = sys.argv[1:]
arguments = {"seconds": float(seconds)}


async def fast():
    from fastmcp import Client

    options = {"mode": mode[0]} if mode else {}
    async with Client(url, **options) as client:
        return (await client.call_tool("quiet_compute", arguments)).content[0].text


async def official():
    from official import connect

    async with connect(url, None, *mode) as client:
        return await client.call("quiet_compute", arguments)


print(asyncio.run(fast() if find_spec("fastmcp") else official()))
