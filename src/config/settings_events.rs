//! The settings of the MCP Events extension that the program runs on.

use crate::notify::callbacks::CallbackReach;

/// What clients have of the MCP Events extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSettings {
    /// Where clients may have events sent. `None`: nowhere.
    pub webhooks: Option<CallbackReach>,
}

/// What is written in `events.webhooks`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum WrittenWebhooks {
    #[default]
    Off,
    To(CallbackReach),
}
