//! The order of the modules.

/// Which modules of the crate a module may name (ARCHITECTURE.md). Absent: anything, as the wiring may.
pub(crate) const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("mcp", &[]),
    ("platform", &["base"]),
    ("tls", &["base"]),
    ("net", &["base", "platform", "tls"]),
    ("jobs", &["base", "mcp"]),
    ("task", &["base", "jobs", "mcp"]),
    ("sharing", &["base", "task"]),
    ("telemetry", &["base", "mcp", "net", "platform", "task"]),
    ("auth", &["base", "mcp", "net", "task", "tls"]),
    (
        "notify",
        &[
            "base",
            "mcp",
            "net",
            "sharing",
            "store",
            "task",
            "telemetry",
            "tls",
        ],
    ),
    (
        "config",
        &[
            "auth", "base", "jobs", "mcp", "net", "notify", "platform", "task",
        ],
    ),
    (
        "store",
        &["base", "mcp", "net", "platform", "task", "telemetry"],
    ),
    (
        "upstream",
        &["base", "jobs", "mcp", "net", "platform", "telemetry", "tls"],
    ),
    (
        "runner",
        &[
            "base",
            "jobs",
            "mcp",
            "sharing",
            "store",
            "task",
            "telemetry",
            "upstream",
        ],
    ),
    (
        "downstream",
        &[
            "auth",
            "base",
            "jobs",
            "mcp",
            "net",
            "notify",
            "platform",
            "runner",
            "sharing",
            "store",
            "task",
            "telemetry",
            "tls",
            "upstream",
        ],
    ),
    (
        "admin",
        &[
            "base",
            "mcp",
            "runner",
            "store",
            "task",
            "telemetry",
            "upstream",
        ],
    ),
];

/// Every module that an arrow may start or end at.
pub(crate) const MODULES: &[&str] = &[
    "admin",
    "app",
    "auth",
    "base",
    "cli",
    "config",
    "downstream",
    "jobs",
    "mcp",
    "net",
    "notify",
    "platform",
    "runner",
    "sharing",
    "store",
    "task",
    "telemetry",
    "tls",
    "upstream",
];
