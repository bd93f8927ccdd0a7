//! The settings that the user may write, as serde reads them, and their defaults.
//!
//! The program does not run on these types: the parent module checks them and turns them into `settings`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::file_auth::Auth;
use super::file_jobs::Job;
use super::file_notify::Notify;
use super::file_store::Store;
use super::file_telemetry::Telemetry;
use super::file_tls::{ClientTls, Tls};
use super::scalar::{OrAuto, SecretText, Size, list, names, optional, optional_list, scalar};
use super::secret::Secret;
use super::settings::OperatorRole;
use super::settings_events::WrittenWebhooks;
use super::settings_upstream::{
    CredentialUse, EraChoice, NativeTasks, SessionUse, TransportChoice,
};
use crate::task::input_rule::OnInputTimeout;
use crate::task::large_results::ResultInline;
use crate::task::policy::{InputWhen, Mode, OnOwnerLost};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Listen,
    pub(super) upstream: Upstream,
    pub(super) store: Store,
    pub(super) tasks: Terms,
    pub(super) tools: Vec<ToolRule>,
    pub(super) jobs: Vec<Job>,
    pub(super) notify: Vec<Notify>,
    pub(super) events: Events,
    pub(super) history: History,
    pub(super) replica: Replica,
    pub(super) drain: Drain,
    pub(super) admin: Admin,
    pub(super) auth: Auth,
    pub(super) limits: Limits,
    pub(super) telemetry: Telemetry,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listen {
    #[serde(deserialize_with = "scalar")]
    pub(super) address: String,
    #[serde(deserialize_with = "scalar")]
    pub(super) path: String,
    #[serde(deserialize_with = "optional")]
    pub(super) public_url: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(super) h2c: bool,
    #[serde(deserialize_with = "list")]
    pub(super) allowed_hosts: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub(super) allowed_origins: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub(super) trusted_proxies: Vec<String>,
    pub(super) tls: Tls,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8440".into(),
            path: "/mcp".into(),
            public_url: None,
            h2c: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            tls: Tls::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Upstream {
    #[serde(deserialize_with = "optional")]
    pub(super) url: Option<String>,
    #[serde(deserialize_with = "names")]
    pub(super) command: Vec<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) cwd: Option<String>,
    pub(super) env: BTreeMap<String, SecretText>,
    pub(super) env_files: BTreeMap<String, String>,
    #[serde(deserialize_with = "list")]
    pub(super) env_allow: Vec<String>,
    #[serde(deserialize_with = "scalar")]
    pub(super) children_max: usize,
    #[serde(deserialize_with = "scalar")]
    pub(super) transport: TransportChoice,
    #[serde(deserialize_with = "scalar")]
    pub(super) http2: bool,
    #[serde(deserialize_with = "scalar")]
    pub(super) era: EraChoice,
    #[serde(deserialize_with = "scalar")]
    pub(super) session: SessionUse,
    #[serde(deserialize_with = "scalar")]
    pub(super) sessions_max: usize,
    #[serde(deserialize_with = "scalar")]
    pub(super) connect_timeout: Duration,
    #[serde(deserialize_with = "optional")]
    pub(super) concurrency: Option<usize>,
    #[serde(deserialize_with = "optional")]
    pub(super) queue: Option<usize>,
    #[serde(deserialize_with = "optional")]
    pub(super) shared: Option<bool>,
    #[serde(deserialize_with = "scalar")]
    pub(super) trust_annotations: bool,
    #[serde(deserialize_with = "scalar")]
    pub(super) native_tasks: NativeTasks,
    pub(super) tls: ClientTls,
    pub(super) headers: BTreeMap<String, SecretText>,
    pub(super) header_files: BTreeMap<String, String>,
    #[serde(deserialize_with = "list")]
    pub(super) forward_headers: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub(super) forward_query: Vec<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) credentials: Option<CredentialUse>,
    #[serde(deserialize_with = "scalar")]
    pub(super) same_resource: bool,
    #[serde(deserialize_with = "optional")]
    pub(super) caller_header: Option<String>,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            url: None,
            command: Vec::new(),
            cwd: None,
            env: BTreeMap::new(),
            env_files: BTreeMap::new(),
            env_allow: Vec::new(),
            children_max: 32,
            transport: TransportChoice::Auto,
            http2: false,
            era: EraChoice::Auto,
            session: SessionUse::Pool,
            sessions_max: 256,
            connect_timeout: Duration::from_secs(5),
            concurrency: None,
            queue: None,
            shared: None,
            trust_annotations: false,
            native_tasks: NativeTasks::Hide,
            tls: ClientTls::default(),
            headers: BTreeMap::new(),
            header_files: BTreeMap::new(),
            forward_headers: Vec::new(),
            forward_query: Vec::new(),
            credentials: None,
            same_resource: false,
            caller_header: None,
        }
    }
}

/// Writes both structs of terms, because serde cannot both flatten a struct and refuse unknown keys.
macro_rules! terms {
    ($($name:ident: $type:ty,)*) => {
        /// The terms for every tool. A missing term is as in [`Rule::default`](crate::task::policy::Rule).
        #[derive(Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct Terms {
            $(
                #[serde(deserialize_with = "optional")]
                pub(super) $name: Option<$type>,
            )*
            #[serde(deserialize_with = "optional_list")]
            pub(super) scopes: Option<Vec<String>>,
            /// A setting for all tools together, which no [`ToolRule`] has, like those below.
            #[serde(deserialize_with = "optional")]
            pub(super) companion_tools: Option<OrAuto<bool>>,
            #[serde(deserialize_with = "optional")]
            pub(super) companion_prefix: Option<String>,
            /// Read before all other settings.
            #[serde(deserialize_with = "optional")]
            pub(super) rules_file: Option<String>,
            /// The same as a text.
            #[serde(deserialize_with = "optional")]
            pub(super) rules: Option<String>,
        }

        /// The terms for some tools. A missing term is as in [`Terms`].
        #[derive(Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct ToolRule {
            #[serde(deserialize_with = "names")]
            pub(super) name: Vec<String>,
            $(
                #[serde(deserialize_with = "optional")]
                $name: Option<$type>,
            )*
            #[serde(deserialize_with = "optional_list")]
            scopes: Option<Vec<String>>,
        }

        impl ToolRule {
            pub(super) fn split(self) -> (Vec<String>, Terms) {
                let terms = Terms {
                    $($name: self.$name,)*
                    scopes: self.scopes,
                    ..Terms::default()
                };
                (self.name, terms)
            }
        }
    };
}

terms! {
    mode: Mode,
    grace_window: Duration,
    fallback_after: OrAuto<Duration>,
    require_tasks: bool,
    input: InputWhen,
    retention: Duration,
    max_duration: Duration,
    poll_interval: Duration,
    poll_hold: Duration,
    input_reminder: Duration,
    input_timeout: Duration,
    on_input_timeout: OnInputTimeout,
    result_bytes_max: Size,
    result_inline: ResultInline,
    max_result_size_chars: usize,
    on_owner_lost: OnOwnerLost,
    concurrency: usize,
    queue: usize,
    heartbeat: OrAuto<bool>,
    attach: bool,
    attach_window: Duration,
    give_up_window: Duration,
}

impl ToolRule {
    pub(super) fn is_limited(&self) -> bool {
        self.concurrency.is_some()
    }

    pub(super) fn attaches(&self) -> bool {
        self.attach == Some(true)
    }

    pub(super) fn follows_patience(&self) -> bool {
        self.fallback_after.is_some_and(|it| it != OrAuto::Auto)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Events {
    #[serde(deserialize_with = "scalar")]
    pub(super) enabled: bool,
    #[serde(deserialize_with = "scalar")]
    pub(super) webhooks: WrittenWebhooks,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct History {
    #[serde(deserialize_with = "scalar")]
    pub(super) keep: Duration,
    #[serde(deserialize_with = "scalar")]
    pub(super) entries_max: usize,
}

impl Default for History {
    fn default() -> Self {
        Self {
            keep: Duration::from_hours(7 * 24),
            entries_max: 100_000,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Replica {
    #[serde(deserialize_with = "optional")]
    pub(super) id: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(super) lease: Duration,
}

impl Default for Replica {
    fn default() -> Self {
        Self {
            id: None,
            lease: Duration::from_secs(15),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Drain {
    #[serde(deserialize_with = "scalar")]
    pub(super) delay: Duration,
    #[serde(deserialize_with = "scalar")]
    pub(super) grace: Duration,
    #[serde(deserialize_with = "optional")]
    pub(super) token: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    pub(super) token_file: Option<String>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            grace: Duration::from_secs(25),
            token: None,
            token_file: None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Admin {
    #[serde(deserialize_with = "optional")]
    pub(super) probes: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) listen: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) token: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    pub(super) token_file: Option<String>,
    pub(super) operators: Vec<Operator>,
    #[serde(deserialize_with = "scalar")]
    pub(super) show_payloads: bool,
    #[serde(deserialize_with = "scalar")]
    pub(super) ready_needs_store: bool,
}

/// An operator with a name.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Operator {
    #[serde(deserialize_with = "optional")]
    pub(super) name: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) token: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    pub(super) token_file: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(super) role: OperatorRole,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    #[serde(deserialize_with = "scalar")]
    pub(super) body_bytes_max: Size,
    #[serde(deserialize_with = "scalar")]
    pub(super) buffer_bytes_max: Size,
    #[serde(deserialize_with = "scalar")]
    pub(super) calls: usize,
    #[serde(deserialize_with = "scalar")]
    pub(super) connections: usize,
    #[serde(deserialize_with = "optional")]
    pub(super) calls_per_caller: Option<usize>,
    #[serde(deserialize_with = "optional")]
    pub(super) requests_per_caller: Option<usize>,
    #[serde(deserialize_with = "scalar")]
    pub(super) header_timeout: Duration,
    #[serde(deserialize_with = "scalar")]
    pub(super) listen_task_ids: usize,
    #[serde(deserialize_with = "optional")]
    pub(super) held_polls: Option<usize>,
    #[serde(deserialize_with = "scalar")]
    pub(super) tasks: usize,
    #[serde(deserialize_with = "scalar")]
    pub(super) tasks_per_caller: usize,
    #[serde(deserialize_with = "scalar")]
    pub(super) task_bytes: Size,
    #[serde(deserialize_with = "scalar")]
    pub(super) task_bytes_per_caller: Size,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: Size(4 << 20),
            buffer_bytes_max: Size(128 << 20),
            calls: 16_384,
            connections: 16_384,
            calls_per_caller: None,
            requests_per_caller: None,
            header_timeout: Duration::from_secs(10),
            listen_task_ids: 1_000,
            held_polls: None,
            tasks: 2_000_000,
            tasks_per_caller: 1_000_000,
            task_bytes: Size(4 << 30),
            task_bytes_per_caller: Size(1 << 30),
        }
    }
}
