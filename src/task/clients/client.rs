//! One line of the table of known clients.

use std::fmt;

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownClient {
    /// `clientInfo.name`. With a "*" at its end: every name that begins so.
    pub name: &'static str,
    /// The first version that the line is about; empty: every version.
    pub since: &'static str,
    /// The time that the client waits for one call.
    pub patience: Patience,
    pub on_progress: OnProgress,
    pub tasks: KnownTasks,
    /// `true` if the client fetches the resources that a `resource_link` in a result names. `None`: not known.
    pub reads_links: Option<bool>,
    /// The client's handling of a large result; empty: not known.
    pub large_results: &'static str,
    pub found_out: FoundOut,
}

/// The time that a client waits for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It has no limit of its own.
    Unlimited,
    Seconds(u32),
}

/// The effect of a progress notification on the client's patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnProgress {
    /// It starts anew.
    Restarts,
    /// Nothing, or the client asks for no progress.
    GoesOn,
    NotKnown,
}

/// Which tasks a client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownTasks {
    None,
    /// Those of 2025-11-25, on a session.
    Of2025,
    /// The extension of 2026-07-28. The client declares it on each request that may become a task.
    Of2026,
    /// Those of 2025-11-25, and its user can do nothing while one runs.
    BlocksOn2025,
}

/// The source of the facts in a line.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundOut {
    pub basis: Evidence,
    /// The measurement or the text that was read.
    pub what: &'static str,
    pub date: &'static str,
}

/// The kind of evidence for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The real client was run.
    Measured,
    /// The fact is from the client's source code.
    Read,
    /// The fact is from reports of the client's users.
    Reported,
}

impl Evidence {
    pub fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Read => "read in the source",
            Self::Reported => "reported by users",
        }
    }
}

impl KnownClient {
    /// Returns `true` if the line is for a client of this name and version.
    pub(super) fn is_of(&self, name: &str, version: &str) -> bool {
        let fits = match self.name.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == self.name,
        };
        // A version that cannot be read may be an old one.
        fits && (self.since.is_empty()
            || numbers(version).is_some_and(|version| Some(version) >= numbers(self.since)))
    }
}

impl fmt::Display for KnownClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if !self.since.is_empty() {
            write!(f, " since {}", self.since)?;
        }
        Ok(())
    }
}

/// The first three numbers of a version. What follows a "-" or a "+" does not count.
pub(super) fn numbers(version: &str) -> Option<[u32; 3]> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let version = version.split(['-', '+']).next()?;
    // Missing parts count as 0, so that `1.2` and `1.2.0` are the same version.
    let mut found = [0; 3];
    let mut parts = version.split('.');
    for (place, number) in found.iter_mut().enumerate() {
        match parts.next() {
            Some(part) => *number = part.parse().ok()?,
            None if place == 0 => return None,
            None => break,
        }
    }
    Some(found)
}
