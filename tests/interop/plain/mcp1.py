"""mcp 1.x, and fastmcp 3, which is made with it."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import mcp.types as types
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


class Client:
    def __init__(self, session, version):
        self.session = session
        self.version = version

    async def tools(self):
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, name, arguments, on_progress=None, patience=None):
        """What the tool says; `patience` is the client's own limit, in seconds."""
        patience = None if patience is None else timedelta(seconds=patience)
        result = await self.session.call_tool(
            name, arguments, read_timeout_seconds=patience, progress_callback=on_progress
        )
        return result.content[0].text

    async def cancel(self, name, arguments):
        """Call, and cancel as soon as it runs; says how the call ended."""
        running = asyncio.Event()

        async def started(*_):
            running.set()

        # This client cancels nothing by itself: an application says so, and names the request.
        id = self.session._request_id
        endless = asyncio.create_task(self.call(name, arguments, started))
        await running.wait()
        params = types.CancelledNotificationParams(requestId=id, reason="enough")
        cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
        await self.session.send_notification(types.ClientNotification(cancelled))
        try:
            await asyncio.wait_for(endless, 10)
        except Exception as error:
            return type(error).__name__


@asynccontextmanager
async def connect(url, elicit=None):
    async with streamablehttp_client(url) as (read, write, _):
        async with ClientSession(read, write, elicitation_callback=elicit) as session:
            yield Client(session, (await session.initialize()).protocolVersion)
