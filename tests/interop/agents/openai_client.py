"""openai-agents, with a server that plays the part of the OpenAI API: openai_client.py URL
SECONDS|default, which is its own limit of a call."""

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
    # Without one, it is 5 s.
    limit = {} if sys.argv[2] == "default" else {"client_session_timeout_seconds": float(sys.argv[2])}
    server = MCPServerStreamableHttp({"url": sys.argv[1]}, **limit)
    async with server:
        agent = Agent("agent", model=model, mcp_servers=[server])
        ended = await Runner.run(agent, "Compute.")
    assert not api.failed, api.failed
    script.print(ended.final_output)


asyncio.run(asyncio.wait_for(main(), LIMIT))
