//! The order of the modules.

/// Which modules of the crate a module may name (ARCHITECTURE.md). Absent: anything, as the wiring may.
pub(crate) const ARROWS: &[(&str, &[&str])] = &[
    ("mcp", &[]),
    ("auth", &["clock", "lock", "mcp", "task", "tls"]),
    ("clock", &["lock"]),
    ("tls", &["lock"]),
    ("drain", &[]),
    ("failpoint", &[]),
    ("lock", &[]),
    ("room", &[]),
    ("socket", &[]),
    ("telemetry", &["lock", "mcp", "task"]),
    ("task", &["mcp"]),
    ("config", &["auth", "task"]),
    (
        "store",
        &["clock", "failpoint", "lock", "mcp", "task", "telemetry"],
    ),
    ("upstream", &["failpoint", "lock", "mcp", "socket", "tls"]),
    (
        "runner",
        &[
            "clock",
            "failpoint",
            "lock",
            "mcp",
            "room",
            "store",
            "task",
            "telemetry",
            "upstream",
        ],
    ),
    (
        "downstream",
        &[
            "auth", "clock", "lock", "mcp", "room", "runner", "socket", "store", "task", "tls",
            "upstream",
        ],
    ),
    (
        "admin",
        &[
            "clock",
            "lock",
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
    "cli",
    "clock",
    "config",
    "downstream",
    "drain",
    "failpoint",
    "lock",
    "mcp",
    "room",
    "runner",
    "socket",
    "store",
    "task",
    "telemetry",
    "tls",
    "upstream",
];
