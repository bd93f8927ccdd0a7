//! What the server says of itself and of its tools.

use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::mcp::error::RpcError;
use crate::mcp::json::{Object, quote};
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::telemetry::tool;
use crate::upstream::credentials::Credentials;
use crate::upstream::discovery::discovered::{DiscoverError, Discovered, refused};
use crate::upstream::discovery::remembered::NOBODY;
use crate::upstream::failures::INVALID_WORDS;
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::http::origin::FIRST_WORDS;
use crate::upstream::pool::PoolKey;
use crate::upstream::port::{Answer, Event, UpstreamRequest};
use crate::upstream::server::ServerTransport;
use crate::upstream::translate;
use crate::upstream::wrapped::Upstream;

/// The number of pages of a tool list that are read. Tools on further pages are not checked.
const PAGES_MAX: usize = 64;

impl Upstream {
    /// Returns the server's description of itself for this caller, who has these capabilities. If the future is dropped, the
    /// request goes on, up to a bound on such requests.
    pub async fn discover(
        &self,
        caller: [u8; 16],
        credentials: Option<Credentials>,
        capabilities: &str,
    ) -> Result<Arc<Discovered>, DiscoverError> {
        let (upstream, capabilities) = (self.clone(), capabilities.to_owned());
        let describing = async move {
            let mut era = upstream.era(credentials.clone()).await?;
            loop {
                let is_hearsay = upstream.known.is_hearsay();
                let describing = upstream.describe(era, caller, credentials.clone(), &capabilities);
                let described = timeout(FIRST_WORDS, describing).await;
                let described = described.unwrap_or(Err(DiscoverError::Failed(UNREACHABLE)));
                // The server may be another one than the one that is remembered.
                if described.is_ok() || !is_hearsay {
                    return described;
                }
                upstream.known.doubt(credentials.clone()).await;
                match upstream.known_era() {
                    Some(now) if now != era => era = now,
                    Some(_) | None => return described,
                }
            }
        };
        let Ok(one) = Arc::clone(&self.beside).try_acquire_owned() else {
            return describing.await;
        };
        let describing = self.known.services.spawn(async move {
            let described = describing.await;
            // The permit bounds the requests that go on without their callers, so it comes back when the request ends
            // and not when its caller leaves.
            drop(one);
            described
        });
        let described = describing.await;
        described.unwrap_or(Err(DiscoverError::Failed(UNREACHABLE)))
    }

    async fn describe(
        &self,
        era: Era,
        caller: [u8; 16],
        credentials: Option<Credentials>,
        capabilities: &str,
    ) -> Result<Arc<Discovered>, DiscoverError> {
        let discovered = match era {
            Era::Modern => Arc::new(self.discover_modern(caller, credentials).await?),
            Era::Legacy => {
                self.discover_legacy(caller, credentials, capabilities)
                    .await?
            }
        };
        self.known
            .note_discovered(era, self.whose(caller), &discovered);
        Ok(discovered)
    }

    /// Returns the server's last description of itself for that caller. That for another caller may be a secret.
    /// Callers whose credentials the server never gets count as one.
    pub fn last_discovered(&self, caller: [u8; 16]) -> Option<Arc<Discovered>> {
        self.known.discovered(self.whose(caller))
    }

    /// Notes what a program answered to the `initialize` of a client's own session.
    pub fn has_initialized(&self, caller: [u8; 16], answer: &str) {
        let object = Object::parse(answer).unwrap_or_default();
        let result = object.get_object("result").unwrap_or_default();
        if let Some(words) = Discovered::of_initialize(&result) {
            let whose = self.whose(caller);
            self.known.note_said(Era::Legacy, whose, &Arc::new(words));
        }
    }

    fn whose(&self, caller: [u8; 16]) -> [u8; 16] {
        if self.server.tells_callers_apart() {
            caller
        } else {
            NOBODY
        }
    }

    async fn discover_modern(
        &self,
        caller: [u8; 16],
        credentials: Option<Credentials>,
    ) -> Result<Discovered, DiscoverError> {
        let params = translate::own_params("{}", &[]);
        let outgoing =
            UpstreamRequest::new(caller, "server/discover", params).with_credentials(credentials);
        let result = self.ask(Era::Modern, outgoing).await?;
        let object = Object::parse(result.get()).unwrap_or_default();
        let member = |key| object.get(key).map(ToOwned::to_owned);
        let meta = object.get_object("_meta").unwrap_or_default();
        Ok(Discovered {
            capabilities: member("capabilities").ok_or(DiscoverError::Failed(INVALID_WORDS))?,
            server_info: meta
                .get("io.modelcontextprotocol/serverInfo")
                .map(ToOwned::to_owned),
            instructions: member("instructions"),
            supported_versions: member("supportedVersions"),
        })
    }

    async fn discover_legacy(
        &self,
        caller: [u8; 16],
        credentials: Option<Credentials>,
        capabilities: &str,
    ) -> Result<Arc<Discovered>, DiscoverError> {
        let sessions = match self.server.transport() {
            ServerTransport::Posts(http_server) => &http_server.sessions,
            ServerTransport::Lines(lines) => {
                let described = lines.described(caller, credentials.as_ref(), capabilities);
                return described.await.map_err(DiscoverError::from);
            }
        };
        let key = PoolKey::new(Era::Legacy, caller, "{}");
        let lease = sessions.check_out(&key, credentials.as_ref()).await;
        let lease = lease.map_err(DiscoverError::from)?;
        let described = lease.session.described().cloned();
        lease.give_back();
        described.ok_or(DiscoverError::Failed(INVALID_WORDS))
    }

    /// The caller's tools, listed at most once a minute and anew after a change.
    pub async fn tools(
        &self,
        caller: [u8; 16],
        credentials: Option<Credentials>,
        capabilities: Arc<str>,
    ) -> Result<Arc<Tools>, DiscoverError> {
        // Each transport has a cache of its own.
        let era = self.era(credentials.clone()).await?;
        let known = match self.server.transport() {
            ServerTransport::Posts(http_server) => &http_server.origin.tools,
            ServerTransport::Lines(lines) => lines.tools(),
        };
        let upstream = self.clone();
        let listing = async move {
            let listing = upstream.list_tools(era, caller, credentials, capabilities);
            let listed = timeout(FIRST_WORDS, listing).await;
            listed.unwrap_or(Err(DiscoverError::Failed(UNREACHABLE)))
        };
        let upstream = self.clone();
        let has_begun = move || upstream.has_session_for(era, caller);
        let services = &self.known.services;
        known.get(caller, services, listing, has_begun).await
    }

    /// Returns `true` if a request of that caller would not wait for a session.
    fn has_session_for(&self, era: Era, caller: [u8; 16]) -> bool {
        match (self.server.transport(), era) {
            (ServerTransport::Posts(_), Era::Modern) => true,
            (ServerTransport::Posts(http_server), Era::Legacy) => {
                http_server.sessions.has_any_of(caller)
            }
            (ServerTransport::Lines(lines), _) => lines.pool().has_any_of(caller),
        }
    }

    async fn list_tools(
        &self,
        era: Era,
        caller: [u8; 16],
        credentials: Option<Credentials>,
        capabilities: Arc<str>,
    ) -> Result<Tools, DiscoverError> {
        let declared = translate::without_tasks(&capabilities).unwrap_or_else(|_| "{}".to_owned());
        let mut tools = Tools::default();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let quoted = cursor.as_deref().map(quote);
            let page: &[(&str, &str)] = match &quoted {
                Some(cursor) => &[("cursor", cursor)],
                None => &[],
            };
            let params = translate::own_params(&declared, page);
            let outgoing = UpstreamRequest::new(caller, "tools/list", params)
                .declaring(Arc::clone(&capabilities))
                .with_credentials(credentials.clone());
            let result = self.ask(era, outgoing).await?;
            cursor = tools
                .add_page(&result)
                .map_err(|_| DiscoverError::Failed(INVALID_WORDS))?;
            if cursor.is_none() {
                break;
            }
        }
        // Clients may call any name, so the metrics take over only names that the server has shown to be tools.
        tool::listed(tools.all_names());
        Ok(tools)
    }

    /// One request of raincheck's own, of which only the answer is of interest.
    pub async fn ask(
        &self,
        era: Era,
        outgoing: UpstreamRequest,
    ) -> Result<Box<RawValue>, DiscoverError> {
        let mut exchange = self.begin(era, outgoing);
        while let Some(event) = exchange.events.next().await {
            match event {
                Event::Result(result) => return Ok(result),
                Event::Error(error) => return Err(refused(error)),
                Event::Failed(failure) => return Err(DiscoverError::Failed(failure)),
                // There is no client to ask, and a server may wait for the answer without end.
                Event::Question(question) => {
                    let refusal = RpcError::method_not_found().to_json();
                    let answer = Answer::Refused(refusal.into());
                    let _ = exchange.control.answer(&question.id, answer).await;
                }
                Event::Sent
                | Event::Progress(_)
                | Event::Log(_)
                | Event::Job(_)
                | Event::Resumable(_)
                | Event::CredentialsRefused
                | Event::Later(_) => {}
            }
        }
        Err(DiscoverError::Failed(INVALID_WORDS))
    }
}
