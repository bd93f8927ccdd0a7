//! The receivers that are notified of the tasks of a tool, from `[[notify]]`.

use std::sync::Arc;

use super::glob::Glob;
use super::notices::{NoticeState, Notices, ReceiverId};

/// The notices that one receiver wants.
#[derive(Debug, Clone)]
pub struct NotifyRule {
    pub receiver: ReceiverId,
    pub states: Vec<NoticeState>,
    /// The tools whose tasks the receiver is notified of.
    pub tools: Vec<Glob>,
    /// The time that a notice is tried again.
    pub retry_ms: u64,
}

/// All receivers.
#[derive(Debug, Clone, Default)]
pub struct NotifyRules(Arc<[NotifyRule]>);

impl NotifyRules {
    pub fn new(rules: Vec<NotifyRule>) -> Self {
        Self(rules.into())
    }

    /// The terms that the record of a task of this tool keeps.
    pub fn notices_of(&self, tool: &str) -> Vec<Notices> {
        let wants = |rule: &&NotifyRule| rule.tools.iter().any(|glob| glob.is_match(tool));
        let wanted = self.0.iter().filter(wants);
        wanted
            .map(|rule| Notices::new(rule.receiver, rule.states.clone(), rule.retry_ms))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_hears_of_its_tools() {
        let rule = |url: &str, glob: &str| NotifyRule {
            receiver: ReceiverId::of(url),
            states: NoticeState::ALL.to_vec(),
            tools: vec![Glob::parse(glob).unwrap()],
            retry_ms: 1,
        };
        let rules = NotifyRules::new(vec![rule("a", "build_*"), rule("b", "*")]);
        let heard = |tool: &str| {
            let all = rules.notices_of(tool);
            all.iter().map(|it| it.receiver).collect::<Vec<_>>()
        };
        let (a, b) = (ReceiverId::of("a"), ReceiverId::of("b"));
        assert_eq!((heard("build_all"), heard("echo")), (vec![a, b], vec![b]));
        assert_eq!(NotifyRules::default().notices_of("echo"), []);
    }
}
