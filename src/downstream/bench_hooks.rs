//! The code that `benches/counted` runs of the parts that nothing outside of this module may name.

use std::hint::black_box;
use std::sync::Arc;

use hyper::http::request::Parts;

use super::events::state::EventsFor;
use super::inbound::request::{Inbound, Modern, ModernMessage};
use super::inbound::requester::Requester;
use super::inbound::route::call::CallFacts;
use super::inbound::route::modern::{RequestFacts, Route, route};
use super::inbound::route::{KnownServer, KnownTools};
use crate::auth::callers::Callers;
use crate::mcp::version::Era;

/// A request of a modern client, with what the listener knows when the request comes.
#[derive(Debug)]
pub struct MeasuredRequest {
    parts: Parts,
    body: Vec<u8>,
    by: Requester,
}

impl MeasuredRequest {
    /// A request of an anonymous client.
    pub fn new(parts: Parts, body: Vec<u8>) -> Self {
        let callers = Callers::new(&[1; 32]);
        let by = Requester::of(&callers, &parts, Era::Modern, None, None, Arc::default());
        Self { parts, body, by }
    }

    /// Reads the message and checks its envelope, that many times. False: the message is no request.
    pub fn read(&self, times: u64) -> bool {
        (0..times).all(|_| black_box(self.message()).is_some())
    }

    /// Reads the message once, and decides that many times what becomes of it. True: it passes each time.
    pub fn route(&self, times: u64) -> bool {
        let Some(modern) = self.message() else {
            return false;
        };
        let facts = RequestFacts {
            calls: CallFacts {
                rules: &self.by.rules,
                keeps_native_tasks: false,
                trusts_annotations: false,
                companion: None,
                is_limited: false,
                requires_task: Some(false),
                is_late: false,
                server: KnownServer {
                    era: Some(Era::Modern),
                    is_decided: true,
                    speaks_http: true,
                    tools: KnownTools::NotAsked,
                },
                given_up: None,
                answer_at: None,
            },
            had_stand_in: false,
            is_no_task_here: false,
            events: EventsFor::Nobody,
        };
        let routed = || route(black_box(&modern), &self.by, black_box(&facts));
        (0..times).all(|_| matches!(routed(), Route::Pass))
    }

    fn message(&self) -> Option<Box<Modern<'_>>> {
        match Inbound::read(black_box(&self.body)).modern(&self.parts.headers) {
            Ok(ModernMessage::Request(modern)) => Some(modern),
            Ok(ModernMessage::Notification) | Err(_) => None,
        }
    }
}
