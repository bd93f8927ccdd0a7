"""mcp 2.x."""

from contextlib import asynccontextmanager

import anyio
import mcp


class Client:
    def __init__(self, client):
        self.client = client
        self.version = client.protocol_version

    async def tools(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name, arguments, on_progress=None, patience=None):
        """What the tool says; `patience` is the client's own limit, in seconds."""
        result = await self.client.call_tool(
            name, arguments, read_timeout_seconds=patience, progress_callback=on_progress
        )
        return result.content[0].text

    async def cancel(self, name, arguments):
        """Call, and cancel as soon as it runs; whether that ended the call."""
        with anyio.CancelScope() as scope:

            async def started(*_):
                scope.cancel()

            await self.call(name, arguments, started)
        return scope.cancelled_caught


@asynccontextmanager
async def connect(url, elicit=None, mode="auto"):
    async with mcp.Client(url, mode=mode, elicitation_callback=elicit) as client:
        yield Client(client)
