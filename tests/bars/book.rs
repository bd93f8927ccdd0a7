//! What became of each call at the servers: the truth that a bar compares the program's words with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// One call, known by the token in its arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    /// How often it was begun.
    pub(crate) runs: u32,
    /// How often it came to its end.
    pub(crate) finished: u32,
    /// When the server was told, by its era's own signal, that no client waits.
    pub(crate) cancelled: Option<Instant>,
    /// When its response was hung up on.
    pub(crate) hung_up: Option<Instant>,
    /// How often its stream was come back to.
    pub(crate) fetched: u32,
    /// Requests on a connection that it had made unusable.
    pub(crate) spoiled: u32,
    /// Rounds of questions asked.
    pub(crate) asked: u32,
    /// Answers to its questions, in the order in which they came.
    pub(crate) answers: Vec<String>,
}

/// The calls of all servers of a bar.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book(Arc<watch::Sender<HashMap<String, Entry>>>);

impl Book {
    pub(crate) fn note(&self, token: &str, change: impl FnOnce(&mut Entry)) {
        self.0
            .send_modify(|calls| change(calls.entry(token.to_owned()).or_default()));
    }

    pub(crate) fn of(&self, token: &str) -> Entry {
        self.0.borrow().get(token).cloned().unwrap_or_default()
    }

    /// Waits until the call is as wanted; whether it came to that.
    pub(crate) async fn until(
        &self,
        token: &str,
        patience: Duration,
        wanted: impl Fn(&Entry) -> bool,
    ) -> bool {
        let mut calls = self.0.subscribe();
        let event = calls.wait_for(|calls| calls.get(token).is_some_and(&wanted));
        tokio::time::timeout(patience, event).await.is_ok()
    }

    /// Waits until all these calls have begun; whether they did.
    pub(crate) async fn all_begun(&self, tokens: &[String], patience: Duration) -> bool {
        let mut calls = self.0.subscribe();
        let begun = |calls: &HashMap<String, Entry>, token: &String| {
            calls
                .get(token)
                .is_some_and(|entry| entry.runs + entry.asked > 0)
        };
        let event = calls.wait_for(|calls| tokens.iter().all(|token| begun(calls, token)));
        tokio::time::timeout(patience, event).await.is_ok()
    }
}
