//! The rules of open jobs, each kept once: thousands of jobs may run by one rule.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::lock::Mutex;
use crate::jobs::job_call::JobCall;

/// The most rules that are remembered. A configuration has few; beyond them the oldest is forgotten, and later jobs by it have their own.
const CALLS_MAX: usize = 64;

/// The rules by which jobs began lately.
#[derive(Debug, Default)]
pub struct SharedJobCalls(Mutex<VecDeque<Arc<JobCall>>>);

impl SharedJobCalls {
    /// Returns the same rule, shared with the other jobs by it. A rule with the key of its call is the call's own.
    pub fn share(&self, call: Arc<JobCall>) -> Arc<JobCall> {
        if call.key.is_some() {
            return call;
        }
        let mut calls = self.0.lock();
        if let Some(same) = calls.iter().find(|same| **same == call) {
            return Arc::clone(same);
        }
        if calls.len() == CALLS_MAX {
            calls.pop_front();
        }
        calls.push_back(Arc::clone(&call));
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::JobRule;
    use crate::jobs::job_call::HelperFacts;

    fn call(argument: &str) -> JobCall {
        JobCall {
            rule: Arc::new(JobRule::default()),
            key: None,
            status: HelperFacts {
                id: Some(argument.into()),
                ..HelperFacts::default()
            },
            result: HelperFacts::default(),
            cancel: HelperFacts::default(),
        }
    }

    #[test]
    fn equal_rules_are_one_and_a_key_is_a_calls_own() {
        let shared = SharedJobCalls::default();
        let of = |call: JobCall| shared.share(Arc::new(call));
        let first = of(call("id"));
        assert!(Arc::ptr_eq(&first, &of(call("id"))));
        assert!(!Arc::ptr_eq(&first, &of(call("other"))));
        let with_key = || JobCall {
            key: Some("k".into()),
            ..call("id")
        };
        assert!(!Arc::ptr_eq(&of(with_key()), &of(with_key())));
        for number in 0..=CALLS_MAX {
            of(call(&number.to_string()));
        }
        assert_eq!(shared.0.lock().len(), CALLS_MAX);
    }
}
