"""openai-agents, with a server that plays the part of the OpenAI API: openai_client.py URL
SECONDS|default, which is its own limit of a call."""

import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

from api import Api
from script import CALLS, Script

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
        # Without this, it ends after 10.
        turns = {"max_turns": CALLS + 2} if CALLS else {}
        ended = await Runner.run(agent, "Compute.", **turns)
    assert not api.failed, api.failed
    script.print(ended.final_output)


script.run(main)
