//! The settings for a client where the operator has set nothing else, and the reason for each. This is the only place
//! that decides them.

use super::client::{KnownClient, KnownTasks, OnProgress, Patience};
use crate::mcp::version::Era;
use crate::task::policy::Rule;

/// After how long a client gets a ticket whose own limit is not known: most clients give up after a minute.
const FALLBACK_AFTER_MS: u64 = 45_000;

/// A client that waits longer than this does not give up early: its model needs no tools of ours.
const EARLY_S: u32 = 300;

/// Something that was chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice<T> {
    pub value: T,
    /// For operators, as the end of a sentence.
    pub why: &'static str,
}

impl<T> Choice<T> {
    fn said(value: T) -> Self {
        Self {
            value,
            why: "the settings say so",
        }
    }

    fn by_table(value: T, why: &'static str) -> Self {
        Self { value, why }
    }
}

/// The settings for one client.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClientTerms {
    /// `None`: the client is not known.
    client: Option<&'static KnownClient>,
}

impl ClientTerms {
    pub fn of(client: Option<&'static KnownClient>) -> Self {
        Self { client }
    }

    pub fn client(self) -> Option<&'static KnownClient> {
        self.client
    }

    /// Decides whether raincheck sends progress while the server is silent, to a client that asked for progress.
    pub fn heartbeat(self, rule: &Rule) -> Choice<bool> {
        if let Some(said) = rule.heartbeat {
            return Choice::said(said);
        }
        match self
            .client
            .map(|client| (client.patience, client.on_progress))
        {
            None | Some((_, OnProgress::NotKnown)) => {
                Choice::by_table(true, "nothing is known against it")
            }
            Some((_, OnProgress::Restarts)) => {
                Choice::by_table(true, "its patience starts anew with progress")
            }
            Some((_, OnProgress::GoesOn)) => {
                Choice::by_table(false, "progress does nothing to its patience")
            }
        }
    }

    /// After how long a call becomes a ticket, in milliseconds, where the client has companion tools.
    pub fn fallback_after_ms(self, rule: &Rule) -> Choice<u64> {
        if let Some(said) = rule.fallback_after_ms {
            return Choice::said(said);
        }
        match self.client.map(|client| client.patience) {
            Some(Patience::Seconds(seconds)) => {
                let ms = u64::from(seconds).saturating_mul(750);
                Choice::by_table(ms, "three quarters of its patience")
            }
            None | Some(Patience::Unlimited) => {
                Choice::by_table(FALLBACK_AFTER_MS, "many clients give up after 60s")
            }
        }
    }

    /// Decides whether the client has companion tools where the operator leaves it to raincheck. `era`: the client's.
    /// A request that declares Tasks never has them.
    pub fn companion_tools(self, era: Era) -> Choice<bool> {
        let Some(client) = self.client else {
            return Choice::by_table(false, "nothing is known of its patience");
        };
        match (client.tasks, client.patience, client.on_progress) {
            // A request of 2026-07-28 has no tasks of 2025-11-25, even if its client has them on sessions.
            (KnownTasks::Of2025 | KnownTasks::BlocksOn2025, ..) if era == Era::Legacy => {
                Choice::by_table(false, "it knows the tasks of 2025-11-25")
            }
            (KnownTasks::Of2026, ..) => Choice::by_table(false, "it knows Tasks"),
            (_, Patience::Unlimited, _) => {
                Choice::by_table(false, "it waits however long it takes")
            }
            (.., OnProgress::Restarts) => Choice::by_table(false, "progress keeps it waiting"),
            (_, Patience::Seconds(seconds), _) if seconds > EARLY_S => {
                Choice::by_table(false, "it waits for more than 5m")
            }
            (_, Patience::Seconds(_), _) => {
                Choice::by_table(true, "it gives up early, and progress does not help")
            }
        }
    }

    /// Decides whether the tool list marks tools as runnable as tasks for a session of 2025-11-25. A tool that runs
    /// only as a task is marked in any case.
    pub fn tasks_of_2025(self) -> Choice<bool> {
        match self.client.map(|client| client.tasks) {
            Some(KnownTasks::BlocksOn2025) => {
                Choice::by_table(false, "its user can do nothing while such a task runs")
            }
            None | Some(KnownTasks::None | KnownTasks::Of2025 | KnownTasks::Of2026) => {
                Choice::by_table(true, "nothing is known against it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(name: &str, version: &str) -> ClientTerms {
        let client = KnownClient::named(name, version);
        assert_eq!(client.is_some(), name != "unknown");
        ClientTerms::of(client)
    }

    #[test]
    fn each_client_gets_what_helps_it() {
        let rule = Rule::default();
        for (name, version, heartbeat, fallback_after_s, companion, announces) in [
            ("unknown", "1", true, 45, [false, false], true),
            ("claude-code", "2.1.330", true, 225, [false, false], true),
            ("opencode", "1.18.33", true, 45, [false, false], true),
            ("opencode", "1.17.0", false, 45, [true, true], true),
            (
                "codex-mcp-client",
                "0.169.0",
                false,
                225,
                [true, true],
                true,
            ),
            ("codex-mcp-client", "0.154.0", false, 45, [true, true], true),
            ("claude-ai", "0.1.0", true, 45, [true, true], true),
            // In 2026-07-28 it has no tasks.
            ("mcpc", "0.6.0", false, 45, [false, true], true),
            (
                "gemini-cli-mcp-client",
                "0.61.0",
                true,
                450,
                [false, false],
                true,
            ),
            (
                "qwen-cli-mcp-client-build",
                "0.0.1",
                true,
                450,
                [false, false],
                true,
            ),
            (
                "Visual Studio Code",
                "1.126.0",
                true,
                45,
                [false, false],
                false,
            ),
            ("mcp", "0.1.0", false, 45, [false, false], true),
        ] {
            let terms = terms(name, version);
            let has = [Era::Legacy, Era::Modern].map(|era| terms.companion_tools(era).value);
            let found = (
                terms.heartbeat(&rule).value,
                terms.fallback_after_ms(&rule).value / 1000,
                has,
                terms.tasks_of_2025().value,
            );
            let expected = (heartbeat, fallback_after_s, companion, announces);
            assert_eq!(found, expected, "{name} {version}");
        }
    }

    #[test]
    fn what_the_operator_says_counts() {
        let said = Rule {
            heartbeat: Some(false),
            fallback_after_ms: Some(7),
            ..Rule::default()
        };
        let known = terms("opencode", "1.18.33");
        assert_eq!(known.heartbeat(&said), Choice::said(false));
        assert_eq!(known.fallback_after_ms(&said), Choice::said(7));
        let beats = Rule {
            heartbeat: Some(true),
            ..Rule::default()
        };
        assert_eq!(terms("mcp", "0.1.0").heartbeat(&beats), Choice::said(true));
    }
}
