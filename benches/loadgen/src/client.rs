//! A client: one connection at a time, and its session.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::time::timeout;

use crate::answer::{Message, Outcome, quoted};
use crate::connection::{Connection, Head};
use crate::options::{Options, Wire};
use crate::sse::next_event;

#[derive(Debug)]
pub(crate) struct Client {
    options: Arc<Options>,
    connection: Option<Connection>,
    session: Session,
    /// The address that connections come from.
    source: Option<IpAddr>,
}

/// The session of a legacy client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Session {
    NotOpened,
    /// The server may do without ids of sessions.
    Opened(Option<String>),
}

impl Client {
    pub(crate) fn new(options: &Arc<Options>, source: Option<IpAddr>) -> Self {
        Self {
            options: Arc::clone(options),
            connection: None,
            session: Session::NotOpened,
            source,
        }
    }

    /// The same client on a session that another one opened.
    pub(crate) fn on_session(mut self, session: Session) -> Self {
        self.session = session;
        self
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The id of the session, if there is one.
    pub(crate) fn session_id(&self) -> Option<String> {
        match &self.session {
            Session::Opened(id) => id.clone(),
            Session::NotOpened => None,
        }
    }

    /// Connects and opens a session where that is needed. Requests that are timed do this before.
    pub(crate) async fn ready(&mut self) -> Result<(), String> {
        if self.options.wire == Wire::Legacy && self.session == Session::NotOpened {
            self.initialize().await?;
        }
        self.connected().await?;
        Ok(())
    }

    /// Sends a request and leaves its answer unread.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.connected().await?.send(request).await
    }

    /// The connection, if it stands.
    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// Closes the connection. What was left on it must not be read as the next answer.
    pub(crate) fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Sends a request and reads its answer, in whatever form it comes. `heard` gets the notifications before it.
    pub(crate) async fn request(
        &mut self,
        id: u64,
        request: &[u8],
        heard: impl FnMut(&Message<'_>),
    ) -> Result<Outcome, String> {
        let limit = self.options.timeout;
        let connection = self.connected().await?;
        let answered = timeout(limit, exchange(connection, id, request, heard)).await;
        let answered = answered.unwrap_or_else(|_| Err("timeout".to_owned()));
        if answered.is_err() {
            self.hang_up();
        }
        answered
    }

    async fn connected(&mut self) -> Result<&mut Connection, String> {
        let connection = match self.connection.take() {
            Some(connection) if connection.is_alive => connection,
            Some(_) | None => Connection::open(&self.options.host, self.source).await?,
        };
        Ok(self.connection.insert(connection))
    }

    async fn initialize(&mut self) -> Result<(), String> {
        let (head, body) = self.plain(&self.options.initialize()).await?;
        if head.status != 200 {
            return Err(format!("initialize: {} {}", head.status, quoted(&body)));
        }
        let initialized = self.options.initialized(head.session.as_deref());
        self.session = Session::Opened(head.session);
        let (head, _) = self.plain(&initialized).await?;
        if head.status >= 300 {
            return Err(format!("initialized: {}", head.status));
        }
        Ok(())
    }

    async fn plain(&mut self, request: &[u8]) -> Result<(Head, Vec<u8>), String> {
        let connection = self.connected().await?;
        connection.send(request).await?;
        let head = connection.head().await?;
        Ok((head, connection.body().await?))
    }
}

async fn exchange(
    connection: &mut Connection,
    id: u64,
    request: &[u8],
    heard: impl FnMut(&Message<'_>),
) -> Result<Outcome, String> {
    connection.send(request).await?;
    let head = connection.head().await?;
    if head.status != 200 {
        let body = connection.body().await?;
        return Err(format!("HTTP {}: {}", head.status, quoted(&body)));
    }
    if head.is_event_stream {
        events(connection, id, heard).await
    } else {
        Message::read(&connection.body().await?)?.result_of(id)
    }
}

/// Reads a stream to its end, so that the connection can be used again.
async fn events(
    connection: &mut Connection,
    id: u64,
    mut heard: impl FnMut(&Message<'_>),
) -> Result<Outcome, String> {
    let (mut buffer, mut answer) = (Vec::new(), None);
    loop {
        let goes_on = connection.piece(&mut buffer).await?;
        while let Some(event) = next_event(&mut buffer) {
            let message = Message::read(&event)?;
            if message.notification().is_some() {
                heard(&message);
            } else if message.is_answer() && answer.replace(message.result_of(id)?).is_some() {
                return Err("two answers".to_owned());
            }
        }
        if !goes_on {
            return answer.ok_or_else(|| "stream ended without an answer".to_owned());
        }
    }
}
