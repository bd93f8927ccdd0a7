//! The black-box suite: the built binary between a scripted server and a client that speaks the
//! wire by hand. Nothing of the library is used here.
#![expect(
    clippy::disallowed_methods,
    reason = "tests own their tasks and environment"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "JSON is written where it is passed"
)]
#![expect(clippy::print_stdout, reason = "shown with a test that failed")]

#[path = "../support/authority.rs"]
mod authority;
#[path = "../support/directory.rs"]
mod directory;
#[path = "../support/events.rs"]
mod events;
#[path = "../support/eventually.rs"]
mod eventually;
#[path = "../support/fleet.rs"]
mod fleet;
#[path = "../support/http_request.rs"]
mod http_request;
#[path = "../support/hyper_server.rs"]
mod hyper_server;
#[path = "../support/ports.rs"]
mod ports;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/redis.rs"]
mod redis_server;
#[path = "../support/relay.rs"]
mod relay;
#[path = "../support/scripted.rs"]
#[expect(dead_code, reason = "the bars have servers that misbehave more")]
mod scripted;
#[path = "../support/sse_server.rs"]
#[expect(
    dead_code,
    reason = "tests/upstream has faults that are not needed here"
)]
mod sse_server;
mod support;
#[path = "../support/tls_client.rs"]
mod tls_client;
#[path = "../support/tls.rs"]
mod tls_server;

mod attack_edges;
mod attack_shares;
mod attack_store;
mod attack_words;
mod attack_writes;
mod auth_callers;
mod auth_certificates;
mod auth_jwt;
mod auth_metadata;
mod auth_scopes;
mod auth_shares;
mod auth_tokens;
mod auth_upstream;
mod before_task;
mod call;
mod callers;
mod cancel;
mod claims;
mod claims_legacy;
mod claims_shared;
mod client_headers;
mod clocks;
mod companion;
mod companion_hosted;
mod companion_legacy;
mod concurrency;
mod connections;
mod counted;
mod counted_reasons;
mod deadline;
mod dialect;
mod discover;
mod drain;
mod early;
mod excerpts;
mod excerpts_kept;
mod field_capacity;
mod field_clients;
mod field_cookies;
mod field_errors;
mod field_pages;
mod field_process_one;
mod field_query;
mod field_redirects;
mod field_servers;
mod field_sessions;
mod field_stdio_end;
mod field_streams;
mod field_watched_server;
mod floods;
mod framing;
mod get_stream;
mod given_up;
mod given_up_bounds;
mod given_up_callers;
mod given_up_cancels;
mod given_up_sse;
mod given_up_store;
mod headers;
mod heartbeat;
mod held;
mod held_carried;
mod held_replicas;
mod held_resumed;
mod history;
mod hosted;
mod hosted_bounds;
mod hosted_ends;
mod hosted_replicas;
mod job_replicas;
mod job_tools;
mod known_clients;
mod large_results;
mod learned_polls;
mod lifecycle;
mod listen;
mod lost_tickets;
mod malformed;
#[expect(dead_code, reason = "the bars measure parts of a life")]
#[path = "../support/memory.rs"]
mod memory;
mod native;
mod needs_client;
mod operators;
mod operators_board;
mod operators_callers;
mod operators_log;
mod operators_named;
mod operators_tasks;
mod pass;
mod pauses;
mod policy;
mod poll_holds;
mod probes;
mod questions;
mod questions_left;
mod queued;
mod quotas;
mod races;
mod reach;
mod recovery;
mod redis_errs;
mod redis_fleet;
mod redis_tls;
mod related;
mod reload;
mod replicas;
mod restart;
mod result_sizes;
mod results;
mod sealed;
mod sent_again;
#[cfg(target_os = "linux")]
mod service_manager;
mod slow_start;
mod sse;
mod stdio;
mod stdio_front;
mod stdio_memory;
mod stdio_sessions;
mod store_down;
mod store_late;
mod store_moved;
mod strict;
mod subscribed_events;
mod subscribed_events_refused;
mod task_events;
mod task_messages;
mod traces;
mod unanswered;
mod unhurried;
mod unread;
mod upstream_http2;
mod webhooks;
mod webhooks_due;
