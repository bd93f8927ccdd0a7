"""strands-agents, with a server that plays the part of the OpenAI API: strands_client.py URL."""

import asyncio
import sys

from mcp.client.streamable_http import streamable_http_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient

from api import Api
from script import Script

script = Script()


def ask(api):
    model = OpenAIModel(client_args={"base_url": api.url, "api_key": "none"}, model_id="script")
    with MCPClient(lambda: streamable_http_client(sys.argv[1])) as server:
        agent = Agent(model=model, tools=server.list_tools_sync(), callback_handler=None)
        return str(agent("Compute."))


async def main():
    api = Api(script)
    answer = await asyncio.to_thread(ask, api)
    assert not api.failed, api.failed
    script.print(answer)


script.run(main)
