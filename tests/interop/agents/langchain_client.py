"""langchain-mcp-adapters, which opens a session for each call and ends it with the answer: langchain_client.py URL."""

import asyncio
import sys

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.prebuilt import create_react_agent

from script import LIMIT, Script

script = Script()


class Model(BaseChatModel):
    names: list[str] = []

    @property
    def _llm_type(self):
        return "script"

    def bind_tools(self, tools, **_):
        return Model(names=[tool.name for tool in tools])

    def _generate(self, messages, stop=None, run_manager=None, **_):
        last = messages[-1]
        said = text(last.content) if isinstance(last, ToolMessage) else None
        call = script.next(self.names, said)
        if call is None:
            message = AIMessage(said)
        else:
            name, arguments = call
            message = AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": str(len(messages))}])
        return ChatResult(generations=[ChatGeneration(message=message)])


def text(content):
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


async def main():
    client = MultiServerMCPClient({"server": {"url": sys.argv[1], "transport": "streamable_http"}})
    agent = create_react_agent(Model(), await client.get_tools())
    ended = await agent.ainvoke({"messages": [("user", "Compute.")]})
    script.print(ended["messages"][-1].content)


asyncio.run(asyncio.wait_for(main(), LIMIT))
