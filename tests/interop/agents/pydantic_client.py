"""pydantic-ai, which shows its model what is structured and nothing else: pydantic_client.py URL tasks|plain. It speaks the
tasks of 2025-11-25 unless it is told not to."""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from script import LIMIT, Script

script = Script()


def model(messages, info):
    last = messages[-1].parts[-1]
    said = last.model_response_str() if isinstance(last, ToolReturnPart) else None
    call = script.next([tool.name for tool in info.function_tools], said)
    return ModelResponse(parts=[TextPart(said) if call is None else ToolCallPart(*call)])


async def main():
    toolset = MCPToolset(sys.argv[1], prefer_tasks=sys.argv[2] == "tasks")
    agent = Agent(FunctionModel(model), toolsets=[toolset])
    async with agent:
        script.print((await agent.run("Compute.")).output)


asyncio.run(asyncio.wait_for(main(), LIMIT))
