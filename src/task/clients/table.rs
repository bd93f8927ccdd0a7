//! The clients that are known, as data. The first line that fits counts, so newer versions stand first.
//!
//! Each line names the source of its facts. A fact that was neither measured nor read stays `NotKnown`.

use super::client::{Evidence, FoundOut, KnownClient, KnownTasks, OnProgress, Patience};

/// Every known client.
pub static CLIENTS: &[KnownClient] = &[
    KnownClient {
        name: "claude-code",
        since: "",
        patience: Patience::Seconds(300),
        on_progress: OnProgress::Restarts,
        tasks: KnownTasks::Of2026,
        reads_links: Some(false),
        large_results: "text over about 50 kB becomes a preview of 2 kB and a file; of a task, 100,000 characters",
        found_out: FoundOut {
            basis: Evidence::Measured,
            what: "Claude Code 2.1.329 and 2.1.330, in the terminal and with -p",
            date: "2026-11-22",
        },
    },
    KnownClient {
        name: "opencode",
        since: "1.18",
        patience: Patience::Seconds(60),
        on_progress: OnProgress::Restarts,
        tasks: KnownTasks::None,
        reads_links: None,
        large_results: "",
        found_out: FoundOut {
            basis: Evidence::Measured,
            what: "opencode 1.18.33",
            date: "2026-11-23",
        },
    },
    KnownClient {
        name: "opencode",
        since: "",
        patience: Patience::Seconds(60),
        // It asks for no progress before that request.
        on_progress: OnProgress::GoesOn,
        tasks: KnownTasks::None,
        reads_links: None,
        large_results: "",
        found_out: FoundOut {
            basis: Evidence::Read,
            what: "anomalyco/opencode, pull request 32477",
            date: "2026-11-23",
        },
    },
    KnownClient {
        name: "codex-mcp-client",
        since: "0.169",
        patience: Patience::Seconds(300),
        on_progress: OnProgress::GoesOn,
        tasks: KnownTasks::None,
        reads_links: Some(false),
        large_results: "cut in the model's history; with structuredContent, all content blocks are dropped",
        found_out: FoundOut {
            basis: Evidence::Measured,
            what: "Codex 0.169",
            date: "2026-11-22",
        },
    },
    KnownClient {
        name: "codex-mcp-client",
        since: "",
        patience: Patience::Seconds(60),
        on_progress: OnProgress::GoesOn,
        tasks: KnownTasks::None,
        reads_links: Some(false),
        large_results: "cut in the model's history; with structuredContent, all content blocks are dropped",
        found_out: FoundOut {
            basis: Evidence::Read,
            what: "openai/codex, tool_timeout_sec of 60 s in earlier versions",
            date: "2026-11-23",
        },
    },
    KnownClient {
        name: "claude-ai",
        since: "",
        patience: Patience::Seconds(60),
        on_progress: OnProgress::NotKnown,
        tasks: KnownTasks::None,
        reads_links: None,
        large_results: "",
        found_out: FoundOut {
            basis: Evidence::Reported,
            what: "Claude Desktop, anthropics/claude-code issues 22542 and 63379; others found 240 s (44032)",
            date: "2026-11-23",
        },
    },
    KnownClient {
        name: "mcpc",
        since: "",
        patience: Patience::Seconds(60),
        on_progress: OnProgress::GoesOn,
        tasks: KnownTasks::Of2025,
        reads_links: None,
        large_results: "",
        found_out: FoundOut {
            basis: Evidence::Measured,
            what: "mcpc 0.2.6; its source: apify/mcpc, src/core/mcp-client.ts",
            date: "2026-11-23",
        },
    },
    KnownClient {
        // The name of the wrapped server may follow.
        name: "gemini-cli-mcp-client*",
        since: "",
        patience: Patience::Seconds(600),
        on_progress: OnProgress::NotKnown,
        tasks: KnownTasks::None,
        reads_links: None,
        large_results: "",
        found_out: FoundOut {
            basis: Evidence::Read,
            what: "google-gemini/gemini-cli, packages/core/src/tools/mcp-client.ts; 0.61 waited for 330 s when measured",
            date: "2026-11-23",
        },
    },
    KnownClient {
        // The name of the wrapped server follows.
        name: "qwen-cli-mcp-client*",
        since: "",
        patience: Patience::Seconds(600),
        on_progress: OnProgress::NotKnown,
        tasks: KnownTasks::None,
        reads_links: None,
        large_results: "its own head and tail, and a file",
        found_out: FoundOut {
            basis: Evidence::Read,
            what: "QwenLM/qwen-code, packages/core/src/tools/mcp-client.ts; 0.24.4 waited for 330 s when measured",
            date: "2026-11-23",
        },
    },
    KnownClient {
        // The other editions of the editor add a word.
        name: "Visual Studio Code*",
        since: "",
        patience: Patience::Unlimited,
        on_progress: OnProgress::NotKnown,
        tasks: KnownTasks::BlocksOn2025,
        reads_links: None,
        large_results: "",
        found_out: FoundOut {
            basis: Evidence::Read,
            what: "microsoft/vscode, mcpServerRequestHandler.ts and issue 308961",
            date: "2026-11-23",
        },
    },
    KnownClient {
        // Every program on the official Python library that gives itself no name. Some have limits of their own.
        name: "mcp",
        since: "",
        patience: Patience::Unlimited,
        on_progress: OnProgress::GoesOn,
        tasks: KnownTasks::None,
        reads_links: None,
        large_results: "",
        found_out: FoundOut {
            basis: Evidence::Measured,
            what: "mcp 1.30 and 2.3, fastmcp 2, 3 and 4, langchain-mcp-adapters 0.3.2, openai-agents 0.24, pydantic-ai 2.68, strands 1.62",
            date: "2026-11-23",
        },
    },
];
