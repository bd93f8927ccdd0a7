//! Where a message of the server goes: to the request that it is about, to the mailbox, or to nobody.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::{LineSession, id_of};
use crate::mcp::changes::is_change;
use crate::mcp::envelope;
use crate::mcp::error::{Reason, RpcError};
use crate::mcp::json::Object;
use crate::mcp::meta::{PROGRESS_TOKEN, RELATED_TASK};
use crate::upstream::line::borrowed::StrayMessage;
use crate::upstream::line::running::{self, LineCallError, RunningRequest};
use crate::upstream::line::writer::{LineEnd, LineListener, SendState, WriteError};
use crate::upstream::message::response;
use crate::upstream::port::{Answer, UpstreamError};
use crate::upstream::reader_queue::Full;
use crate::upstream::request_id::{RequestId, is_beside_clients};
use crate::upstream::server_message::{ServerMessage, is_about_notification};

/// A message for a stream that is slow, or that has no reader, is dropped if it is larger.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

impl LineSession {
    fn answered(&self, id: &str, message: ServerMessage, text: &str) {
        let mut table = self.table();
        let known = table.inflight.remove(&RequestId::read(id));
        // Some servers write the id in another form. Only then are all requests compared.
        let known = known.or_else(|| table.inflight.remove_named(|key| key.is(id)));
        let is_anonymous = known.is_none() && id == "null";
        let known = if is_anonymous {
            table.inflight.remove_sole()
        } else {
            known
        };
        table.used = Instant::now();
        drop(table);
        let Some((running, _)) = known else {
            debug!("an answer to no request of the client was ignored");
            return;
        };
        // A program that dies after each handshake must not count as one that works.
        if !running.is_handshake {
            self.writer.answered();
        }
        running.send_state.settle();
        match message {
            // The client needs its own id.
            ServerMessage::Error { error, .. } if is_anonymous => {
                let error = UpstreamError::in_message(error);
                running.reader.fail(LineCallError::Error(error));
            }
            ServerMessage::Unreadable { failure, .. } if is_anonymous => {
                running.reader.fail(LineCallError::Failed(failure));
            }
            ServerMessage::Primed
            | ServerMessage::Result { .. }
            | ServerMessage::Error { .. }
            | ServerMessage::Request { .. }
            | ServerMessage::Notification { .. }
            | ServerMessage::Unreadable { .. } => running.reader.answer(message, text),
        }
    }

    /// Returns `true` if the message is a ping that raincheck answers: only requests of raincheck's run, and the client
    /// does not read.
    fn is_for_us(&self, stray: StrayMessage<'_>) -> bool {
        let table = self.table();
        let is_borrowed = |running: &RunningRequest| {
            matches!(running.reader, running::RequestReader::Borrowed(_))
        };
        stray.method == "ping"
            && !table.mailbox.is_read()
            && !table.inflight.is_empty()
            && table.inflight.requests().all(is_borrowed)
    }

    /// Gives a message that is no answer to its reader. False if no reader takes it.
    fn route(&self, stray: StrayMessage<'_>) -> bool {
        let StrayMessage {
            method,
            params,
            text,
            ..
        } = stray;
        if text.len() > MESSAGE_BYTES_MAX {
            warn!(
                method,
                size = text.len(),
                "a message that is too large was dropped"
            );
            return false;
        }
        let mut table = self.table();
        let token = || Object::parse(params?.get()).ok()?.get(PROGRESS_TOKEN);
        let own = match method {
            "notifications/progress" => {
                let token = token();
                let is_ours = token.is_some_and(|token| is_beside_clients(token.get()));
                let token = token.map(id_of);
                let of_token =
                    |running: &&RunningRequest| token.is_some() && running.token == token;
                // Clients that use an id twice use a token twice: then it does not show whose progress this is.
                if table.inflight.requests().filter(of_token).count() > 1 {
                    debug!("progress of a token that several requests have was dropped");
                    return true;
                }
                let own = table.inflight.requests().find(of_token);
                if is_ours {
                    // The message is about a request of raincheck's, which may be over. No client hears it.
                    let (is_heard, full) = match own {
                        Some(own) => (own.reader.say(stray), own.reader.full()),
                        None => (true, None),
                    };
                    table.full = full;
                    return is_heard;
                }
                // Hosts end their connection to a server that sends progress of a request that is over. Progress of a task
                // of the server's own comes behind the answer to its request.
                if table.inflight.is_empty() && !text.contains(RELATED_TASK) {
                    debug!("progress of no request was dropped");
                    return true;
                }
                own
            }
            // A change belongs to no request.
            change if is_change(change) && table.mailbox.is_read() => None,
            _ => table.inflight.only(Instant::now()),
        };
        if let Some(own) = own.filter(|own| own.reader.say(stray)) {
            table.full = own.reader.full();
            return true;
        }
        let is_heard = table.mailbox.say(text);
        table.full = table.mailbox.full();
        is_heard
    }
}

impl LineListener for LineSession {
    fn heard(&self, message: ServerMessage, text: &str) {
        match &message {
            // Only event streams have priming events.
            ServerMessage::Primed => {}
            ServerMessage::Error { id, error } if is_about_notification(id, error) => {
                debug!("the server refused a notification");
            }
            ServerMessage::Result { id, .. }
            | ServerMessage::Error { id, .. }
            | ServerMessage::Unreadable { id, .. } => {
                let id = id.clone();
                self.answered(&id, message, text);
            }
            ServerMessage::Notification { method, params } => {
                let stray = StrayMessage {
                    id: None,
                    method,
                    params: params.as_deref(),
                    text,
                };
                if !self.route(stray) {
                    debug!(
                        method = &**method,
                        "a notification that nobody reads was dropped"
                    );
                }
            }
            ServerMessage::Request { id, method, params } => {
                let stray = StrayMessage {
                    id: Some(id),
                    method,
                    params: params.as_deref(),
                    text,
                };
                if self.is_for_us(stray) {
                    let answer = Answer::Result("{}".into());
                    self.writer.try_say(response(id, &answer));
                } else if !self.route(stray) {
                    warn!(
                        method = &**method,
                        "a question that nobody reads was refused"
                    );
                    let error = RpcError::internal("The client does not read its stream");
                    // The task that reads the line must not wait, so this is dropped if the server does not read.
                    self.writer.try_say(envelope::error(id, &error.to_json()));
                }
            }
        }
    }

    fn full(&self) -> Option<Full> {
        self.table().full.take()
    }

    fn refused(&self, send_state: Option<&Arc<SendState>>, refusal: WriteError) {
        let end = match refusal {
            WriteError::Failed(failure) => LineCallError::Failed(failure),
            WriteError::Error(error) => LineCallError::Error(error),
            WriteError::Lost(failure) => {
                // The session ends with the line, and its client begins anew.
                self.writer.stop();
                LineCallError::Failed(failure)
            }
        };
        let mut table = self.table();
        let is_it = |running: &RunningRequest| {
            send_state.is_some_and(|it| Arc::ptr_eq(it, &running.send_state))
        };
        let refused = table.inflight.remove_where(is_it);
        drop(table);
        // Each request has a send_state of its own, so at most one was removed.
        if let Some(refused) = refused.into_iter().next() {
            refused.reader.fail(end);
        }
    }

    fn over(&self, _end: LineEnd) {
        let mut table = self.table();
        table.is_open = false;
        table.mailbox.end();
        let running = table.inflight.take_all();
        drop(table);
        for running in running {
            let unsent = match running.reader {
                running::RequestReader::Client { .. } => Reason::UpstreamUnreachable,
                // The session that has ended is the client's: a request of raincheck's there is not sent again.
                running::RequestReader::Borrowed(_) => Reason::UpstreamReset,
            };
            running.end(unsent);
        }
    }
}
