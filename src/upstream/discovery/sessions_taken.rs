//! Decides when a modern server is asked whether it takes sessions of legacy clients, and which request waits
//! for the answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::mcp::version::Era;
use crate::upstream::credentials::Credentials;
use crate::upstream::discovery::facts::ServerFacts;
use crate::upstream::discovery::legacy_sessions::{SessionsAnswer, ask_in_time};
use crate::upstream::server::ServerTransport;
use crate::upstream::wrapped::Upstream;

/// The time for which a client's request waits for the answer. The request to the server goes on.
const PATIENCE: Duration = Duration::from_secs(5);

impl Upstream {
    /// The answer of [`Self::refuses_sessions`] without asking the server.
    pub fn is_known_to_refuse_sessions(&self) -> bool {
        let belief = self.known.sessions.belief();
        self.known_era() == Some(Era::Modern)
            && belief.is_some_and(|belief| !belief.said.is_taken())
    }

    /// Returns `true` if the server is known to be modern only, so that it refuses the sessions of legacy clients. Only
    /// the first request waits for the server. Later the server is asked in a job of its own, and until it
    /// answers, its last answer is believed.
    pub async fn refuses_sessions(&self, credentials: Option<&Credentials>) -> bool {
        if self.known_era() != Some(Era::Modern) {
            return false;
        }
        let sessions = &self.known.sessions;
        match sessions.belief() {
            Some(belief) if Instant::now() < belief.until => !belief.said.is_taken(),
            Some(belief) => {
                self.known.ask_of_sessions_beside(credentials);
                !belief.said.is_taken()
            }
            None => {
                self.known.ask_of_sessions_first(credentials).await;
                let belief = sessions.belief();
                belief.is_some_and(|belief| !belief.said.is_taken())
            }
        }
    }
}

impl ServerFacts {
    /// Asks the server, and waits a few seconds at most.
    async fn ask_of_sessions_first(self: &Arc<Self>, credentials: Option<&Credentials>) {
        let asking = async {
            if let Some(turn) = self.sessions.asking.take().await {
                let (known, credentials) = (Arc::clone(self), credentials.cloned());
                let asking = self.services.spawn(async move {
                    known.ask_of_sessions(credentials.as_ref()).await;
                    // The turn ends with the question, because the request that began it waits for a bounded time only.
                    drop(turn);
                });
                let _ = asking.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, asking).await;
    }

    /// Asks the server in a job that nobody waits for.
    fn ask_of_sessions_beside(self: &Arc<Self>, credentials: Option<&Credentials>) {
        let (known, credentials) = (Arc::clone(self), credentials.cloned());
        self.services.spawn(async move {
            let Some(_turn) = known.sessions.asking.try_take() else {
                return;
            };
            let belief = known.sessions.belief();
            // Another job may have asked before this one got the turn.
            if belief.is_none_or(|belief| belief.until <= Instant::now()) {
                known.ask_of_sessions(credentials.as_ref()).await;
            }
        });
    }

    async fn ask_of_sessions(&self, credentials: Option<&Credentials>) {
        let said = match self.server.transport() {
            ServerTransport::Posts(http_server) => {
                Box::pin(ask_in_time(&http_server.origin, credentials)).await
            }
            ServerTransport::Lines(lines) => lines
                .takes_sessions()
                .await
                .map(SessionsAnswer::of_a_program),
        };
        self.sessions.note(said);
    }
}
