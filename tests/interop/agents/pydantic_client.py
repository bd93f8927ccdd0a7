"""pydantic-ai, which shows its model what is structured and nothing else: pydantic_client.py URL tasks|plain. It speaks the
tasks of 2025-11-25 unless it is told not to."""

import sys

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from script import CALLS, CLOCK, Script

script = Script()


def model(messages, info):
    last = messages[-1].parts[-1]
    said = last.model_response_str() if isinstance(last, ToolReturnPart) else None
    if isinstance(last, RetryPromptPart):
        said = last.model_response()
    call = script.next([tool.name for tool in info.function_tools], said)
    return ModelResponse(parts=[TextPart(said) if call is None else ToolCallPart(*call)])


async def main():
    options = {} if CLOCK is None else {"read_timeout": CLOCK}
    if CALLS:
        # Without this, the agent ends with the second call of a tool that fails.
        options["max_retries"] = CALLS
    toolset = MCPToolset(sys.argv[1], prefer_tasks=sys.argv[2] == "tasks", **options)
    agent = Agent(FunctionModel(model), toolsets=[toolset])
    async with agent:
        script.print((await agent.run("Compute.")).output)


script.run(main)
