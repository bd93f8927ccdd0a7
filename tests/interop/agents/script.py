"""The part of the model, for every agent here: calls the long tool, then whatever it is told to call, and says what it
heard last. It reads what an agent shows its model, and nothing else. AGENT_CALLS lets it make the same call again as long as it has
no result, after it thought for AGENT_THINKS seconds: repeats.mjs."""

import asyncio
import json
import os
import re
import sys
import time

# What is called, and how long an agent may take in all: hosts.mjs has a silent tool and more time.
TOOL = os.environ.get("AGENT_TOOL", "slow_compute")
ARGUMENTS = json.loads(os.environ.get("AGENT_ARGUMENTS", '{"seconds": 5, "label": "agent"}'))
LIMIT = float(os.environ.get("AGENT_LIMIT", "50"))
# How many calls it makes in all, and what it does before each but the first.
CALLS = int(os.environ.get("AGENT_CALLS", "0"))
THINKS = float(os.environ.get("AGENT_THINKS", "0"))
# The agent's own limit of a call in seconds, if it is not its default.
CLOCK = float(os.environ["AGENT_CLOCK"]) if "AGENT_CLOCK" in os.environ else None
# What it says of itself with each request, if anything.
HEADERS = {"Authorization": f"Bearer {os.environ['AGENT_TOKEN']}"} if "AGENT_TOKEN" in os.environ else {}


# How a model finds a tool that is not in its list: Claude Code and Qwen Code list few tools, and have one that finds the rest.
FINDERS = ["ToolSearch", "tool_search"]
# Codex shows no tool of a server that is not ready yet. A model does something else meanwhile, such as to run a command.
SHELL = "exec_command"
# How often it asks for a tool that is not there yet: those two start before they are connected.
FINDS_MAX = 20


class Script:
    def __init__(self):
        self.offered = []
        # The names of tools that are not in the list.
        self.found = []
        self.called = []
        self.heard = []
        self.turns = 0
        # How often it did something else because the tool was not there.
        self.finds = 0
        # Whether it heard all that there is to hear.
        self.is_over = False
        # From the call to what was heard last, in seconds.
        self.began = None
        self.took = 0.0

    def knows(self, tools):
        """Whether a request with these tools is one of the conversation: agents also ask about other things meanwhile."""
        return any(tool.endswith(TOOL) or tool in (*FINDERS, SHELL) for tool in tools)

    def next(self, tools, said):
        """The tool to call and its arguments, or nothing. `tools` are the names of those that there are, `said` is what
        the last one answered."""
        self.turns += 1
        if not self.called:
            return self.first(tools, said)
        said = said if isinstance(said, str) else json.dumps(said, default=str)
        self.heard.append(said)
        self.took = time.monotonic() - self.began
        self.is_over = "moved to the background" not in said
        following = re.search(r"Ticket ([0-9a-f-]{36})\b.* Call (\w+) with this ticket and round (\d+)", said, re.DOTALL)
        if CALLS and ("done after" in said or len(self.called) >= CALLS):
            return None
        time.sleep(THINKS)
        if following is None:
            return self.call(tools, TOOL, ARGUMENTS) if CALLS else None
        ticket, tool, turn = following.groups()
        return self.call(tools, tool, {"ticket": ticket, "round": int(turn)})

    def first(self, tools, said):
        """Calls the long tool, or looks for it."""
        self.offered = tools
        finder = next((tool for tool in tools if tool in (*FINDERS, SHELL)), None)
        found = re.search(rf'"name": ?"(\w+__{TOOL})"', said or "") if "tool_call" in tools else None
        if finder is None or found or any(tool.endswith(TOOL) for tool in tools):
            self.found = [found[1]] if found else []
            return self.call(tools, TOOL, ARGUMENTS)
        self.finds += 1
        assert self.finds <= FINDS_MAX, f"{TOOL} is not found: {said}"
        if finder == SHELL:
            return finder, {"cmd": "sleep 1"}
        return finder, {"query": f"select:mcp__server__{TOOL}", "max_results": 5}

    def call(self, tools, tool, arguments):
        # What was found once is not looked for again.
        tools = [*tools, *self.found]
        assert any(name.endswith(tool) for name in tools), f"{tool} is none of {tools}"
        assert CALLS or arguments not in [earlier for _, earlier in self.called], "the same call again"
        if not self.called:
            self.began = time.monotonic()
            print("calling", file=sys.stderr, flush=True)
        self.called.append((tool, arguments))
        name = next(name for name in tools if name.endswith(tool))
        # Qwen Code calls a tool that was found by another one.
        return ("tool_call", {"name": name, "arguments": arguments}) if "tool_call" in tools else (name, arguments)

    def run(self, main):
        """The agent, within its limit. What its model saw is also told where the agent ends with an error."""
        try:
            asyncio.run(asyncio.wait_for(main(), LIMIT))
        except Exception:
            self.print(None)
            raise

    def print(self, answer):
        called = [tool for tool, _ in self.called]
        said = {"offered": self.offered, "called": called, "heard": self.heard, "answer": answer, "turns": self.turns}
        print(json.dumps(said | {"finds": self.finds, "took": self.took}))
