"""The client of openai-agents without an agent, in its default settings: it gives up after 5 s."""

from contextlib import asynccontextmanager

from agents.mcp import MCPServerStreamableHttp


class Client:
    version = None

    def __init__(self, server):
        self.server = server

    async def call(self, name, arguments, on_progress=None, patience=None):
        """What the tool says; its limit is that of the server."""
        return (await self.server.call_tool(name, arguments)).content[0].text


@asynccontextmanager
async def connect(url, _elicit=None):
    async with MCPServerStreamableHttp({"url": url}) as server:
        yield Client(server)
