//! The declarations of tasks that raincheck makes in two results of the server: `initialize` and `tools/list`. Pure.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::native::NativeTools;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::mcp::tasks_2025::{Support, with_capabilities, with_support};
use crate::task::policy::{Mode, Rule, Rules};

const CAPABILITIES: &str = r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;

/// A caller that cannot be distinguished from others gets no list (2025-11-25, Tasks, Task Isolation).
const CAPABILITIES_OF_NOBODY: &str = r#"{"cancel":{},"requests":{"tools":{"call":{}}}}"#;

/// The declarations of tasks in a result.
#[derive(Debug, Clone)]
pub(in crate::downstream) struct Advertised {
    place: SaidIn,
    /// The server's own tasks are the client's business.
    keep_own: bool,
    /// Tools that need not run as tasks declare that they may.
    says_optional: bool,
}

#[derive(Debug, Clone)]
enum SaidIn {
    /// In the result of `initialize`: these capabilities.
    Capabilities(&'static str),
    /// In the result of `tools/list`: for each tool.
    Tools(Arc<Rules>, Arc<NativeTools>),
}

impl Advertised {
    /// In the result of `initialize`.
    pub(in crate::downstream) fn in_capabilities(proxy: &Arc<Proxy>, by: &Requester) -> Self {
        let capabilities = if by.has_credentials {
            CAPABILITIES
        } else {
            CAPABILITIES_OF_NOBODY
        };
        Self {
            place: SaidIn::Capabilities(capabilities),
            keep_own: proxy.settings.pass_native_tasks,
            says_optional: by.client.tasks_of_2025().value,
        }
    }

    /// In the result of `tools/list`.
    pub(in crate::downstream) fn in_tools(proxy: &Arc<Proxy>, by: &Requester) -> Self {
        let (rules, native_tools) = (&by.rules, &proxy.native_tools);
        Self {
            place: SaidIn::Tools(Arc::clone(rules), Arc::clone(native_tools)),
            keep_own: proxy.settings.pass_native_tasks,
            says_optional: by.client.tasks_of_2025().value,
        }
    }

    /// The edited result. `None`: the result stays as it is.
    pub(in crate::downstream) fn edit(&self, result: &RawValue) -> Option<String> {
        let result = result.get();
        match &self.place {
            SaidIn::Capabilities(tasks) => with_capabilities(result, tasks, self.keep_own).ok()?,
            SaidIn::Tools(rules, native_tools) => with_support(result, |name, own| {
                // Noted while the list passes: a call of a tool that is not noted has to ask the server first.
                native_tools.note(name, own == Some("required"));
                let rule = rules.for_tool(name).0;
                support(rule, own, self.keep_own, self.says_optional)
            })
            .ok(),
        }
    }
}

/// Returns the task support that a tool declares, where the server declares `own`.
fn support(rule: &Rule, own: Option<&str>, keep_own: bool, says_optional: bool) -> Support {
    match (rule.mode, own) {
        (_, Some("optional" | "required")) if keep_own => Support::Untouched,
        // Without a task the tool cannot be called at all.
        (Mode::Never, Some("required")) => Support::Untouched,
        (Mode::Never, _) => Support::Unsaid,
        (Mode::Always | Mode::Auto, _) if rule.require_tasks => Support::Required,
        (Mode::Always | Mode::Auto, _) if !says_optional => Support::Unsaid,
        (Mode::Always | Mode::Auto, _) => Support::Optional,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_says_follows_the_policy() {
        let rule = |mode, require_tasks| Rule {
            mode,
            require_tasks,
            ..Rule::default()
        };
        for (mode, require_tasks, own, keep_own, says) in [
            (Mode::Auto, false, None, false, Support::Optional),
            (
                Mode::Always,
                false,
                Some("forbidden"),
                false,
                Support::Optional,
            ),
            (
                Mode::Always,
                false,
                Some("required"),
                false,
                Support::Optional,
            ),
            (Mode::Always, true, None, false, Support::Required),
            (Mode::Never, false, Some("optional"), false, Support::Unsaid),
            (
                Mode::Never,
                false,
                Some("required"),
                false,
                Support::Untouched,
            ),
            (
                Mode::Always,
                false,
                Some("optional"),
                true,
                Support::Untouched,
            ),
            (
                Mode::Always,
                false,
                Some("forbidden"),
                true,
                Support::Optional,
            ),
        ] {
            let found = |says_optional| {
                let rule = rule(mode, require_tasks);
                support(&rule, own, keep_own, says_optional)
            };
            assert_eq!(
                found(true),
                says,
                "{mode:?} {require_tasks} {own:?} {keep_own}"
            );
            let unsaid = match says {
                Support::Optional => Support::Unsaid,
                Support::Untouched | Support::Required | Support::Unsaid => says,
            };
            assert_eq!(found(false), unsaid);
        }
    }
}
