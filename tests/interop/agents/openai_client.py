"""openai-agents, with a server that plays the part of the OpenAI API: openai_client.py URL."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

from api import Api
from script import LIMIT, Script

script = Script()


async def main():
    set_tracing_disabled(True)
    api = Api(script)
    model = OpenAIChatCompletionsModel("script", AsyncOpenAI(base_url=api.url, api_key="none"))
    # Its own limit of 5 s is too short for any long call.
    server = MCPServerStreamableHttp({"url": sys.argv[1]}, client_session_timeout_seconds=30)
    async with server:
        agent = Agent("agent", model=model, mcp_servers=[server])
        ended = await Runner.run(agent, "Compute.")
    assert not api.failed, api.failed
    script.print(ended.final_output)


asyncio.run(asyncio.wait_for(main(), LIMIT))
