"""The part of the model, for every agent here: calls the long tool, then whatever it is told to call, and says what it
heard last. It reads what an agent shows its model, and nothing else."""

import json
import os
import re

# What is called, and how long an agent may take in all: defaults.mjs has a silent tool and more time.
TOOL = os.environ.get("AGENT_TOOL", "slow_compute")
ARGUMENTS = json.loads(os.environ.get("AGENT_ARGUMENTS", '{"seconds": 5, "label": "agent"}'))
LIMIT = float(os.environ.get("AGENT_LIMIT", "50"))


class Script:
    def __init__(self):
        self.offered = []
        self.called = []
        self.heard = []

    def next(self, tools, said):
        """The tool to call and its arguments, or nothing. `tools` are the names of those that there are, `said` is what
        the last one answered."""
        if said is None:
            self.offered = tools
            return self.call(tools, TOOL, ARGUMENTS)
        said = said if isinstance(said, str) else json.dumps(said, default=str)
        self.heard.append(said)
        following = re.search(r"Ticket ([0-9a-f-]{36})\b.* Call (\w+) with this ticket and round (\d+)", said, re.DOTALL)
        if following is None:
            return None
        ticket, tool, turn = following.groups()
        return self.call(tools, tool, {"ticket": ticket, "round": int(turn)})

    def call(self, tools, tool, arguments):
        assert any(name.endswith(tool) for name in tools), f"{tool} is none of {tools}"
        assert arguments not in [earlier for _, earlier in self.called], "the same call again"
        self.called.append((tool, arguments))
        return next(name for name in tools if name.endswith(tool)), arguments

    def print(self, answer):
        called = [tool for tool, _ in self.called]
        print(json.dumps({"offered": self.offered, "called": called, "heard": self.heard, "answer": answer}))
