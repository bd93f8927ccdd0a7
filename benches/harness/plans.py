"""What is measured: each plan is a list of parts, and each part is measured side by side on its targets."""

from dataclasses import dataclass, field


@dataclass
class Part:
    """One kind of load. Ratios are to the first target that is installed."""

    mode: str
    targets: list
    concurrency: list
    # Options of loadgen.
    options: list = field(default_factory=list)
    # Calls to hold open, for the modes `open-*`. Each is measured on a process started for it.
    open: list = field(default_factory=list)
    # The name of the part, where a plan has several.
    name: str = ""


@dataclass
class Plan:
    name: str
    parts: list


PASSED = ["nginx", "haproxy", "hyper", "hyper-inspect", "inspect-tpc", "raincheck", "direct"]
TASKS = ["hyper-tasks", "tasks-tpc", "raincheck-tasks", "fastmcp"]

PLANS = [
    Plan("passthrough", [Part("passthrough", PASSED, [1, 32, 64])]),
    Plan("sse", [Part("sse", ["nginx", "haproxy", "hyper-inspect", "raincheck", "direct"], [16, 128])]),
    Plan("task-create", [Part("task-create", TASKS, [1, 16, 64])]),
    Plan("task-get", [Part("task-get", TASKS, [1, 16, 64], ["--preload", "200"])]),
    Plan(
        "open-tasks",
        [
            Part(
                "open-tasks",
                ["hyper-tasks", "hyper-tasks-h2", "raincheck-tasks", "raincheck-tasks-h2"],
                [16],
                ["--slow-ms", "120000", "--hold", "3"],
                open=[1000, 4000, 9000],
            )
        ],
    ),
    # Polls of an almost idle proxy, of a busy one and of a full one, over HTTP/2 to the server.
    Plan(
        "in-flight",
        [
            Part(
                "open-tasks",
                ["raincheck-in-flight"],
                [16],
                ["--slow-ms", "300000", "--hold", "3", "--polls", "100000"],
                open=[100, 50000, 100000],
            )
        ],
    ),
    Plan(
        "embedded-create",
        [
            Part("fdatasync", ["disk"], [1]),
            Part("task-create", ["hyper-tasks", "raincheck-tasks", "raincheck-embedded"], [1, 16, 64]),
        ],
    ),
    Plan(
        "jwt",
        [
            Part("passthrough", ["raincheck-token", "raincheck-jwt"], [1, 32, 64], name="passthrough"),
            Part("task-create", ["raincheck-token-tasks", "raincheck-jwt-tasks"], [1, 16], name="create"),
        ],
    ),
    Plan(
        "telemetry",
        [
            Part(
                "passthrough",
                [
                    "raincheck",
                    "raincheck-metrics",
                    "raincheck-telemetry",
                    "raincheck-traces",
                    "raincheck-watched",
                    "raincheck-traces-all",
                    "nginx",
                    "nginx-log",
                ],
                [1, 32, 64],
            )
        ],
    ),
    Plan(
        "cold-start",
        [Part("cold-start", ["nginx", "haproxy", "hyper-inspect", "hyper-tasks", "raincheck", "raincheck-embedded"], [1])],
    ),
    Plan("size", [Part("size", ["raincheck", "hyper-limit"], [1])]),
]
