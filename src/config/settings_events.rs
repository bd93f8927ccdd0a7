//! The settings of the MCP Events extension that the program runs on.

use crate::notify::callbacks::CallbackReach;

/// The settings of the MCP Events extension for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSettings {
    /// Where clients may have events sent. `None`: nowhere.
    pub webhooks: Option<CallbackReach>,
}

/// The value of `events.webhooks` as it is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum WrittenWebhooks {
    #[default]
    Off,
    To(CallbackReach),
}
