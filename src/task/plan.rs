//! The decision about one call, from its rule and from its client's capabilities: to answer it, or to make a task of
//! it, and when.

use super::clients::ClientTerms;
use super::policy::{InputWhen, Mode, Rule};

/// The way one call is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// The tool runs as a task only, and this client cannot follow one.
    Refuse,
    /// The client waits until the call is answered.
    Held,
    /// The call becomes a task if it is not answered within the window.
    Auto { window_ms: u64, input: InputWhen },
    /// The call is a task from the start.
    Always { input: InputWhen },
}

/// The plan of a call, from what *this* request declares. Earlier requests of the session do not count.
pub fn plan(rule: &Rule, declares_tasks: bool, is_retry: bool) -> Plan {
    if !declares_tasks {
        return if rule.require_tasks {
            Plan::Refuse
        } else {
            Plan::Held
        };
    }
    // A retry brings the answers to questions that came before the task. From here on the call is a task, and
    // the task asks further questions.
    let input = if is_retry {
        InputWhen::InTask
    } else {
        rule.input
    };
    match rule.mode {
        Mode::Never => Plan::Held,
        Mode::Auto => Plan::Auto {
            window_ms: rule.grace_window_ms,
            input,
        },
        Mode::Always => Plan::Always { input },
    }
}

/// Returns the plan of a call whose client follows tasks by companion tools only: after `fallback_after_ms` the
/// client gets a ticket. `input` is the way the client is asked before that.
pub fn with_companion(rule: &Rule, client: ClientTerms, input: InputWhen) -> Plan {
    match (rule.require_tasks, rule.mode) {
        (true, _) => Plan::Refuse,
        (false, Mode::Never) => Plan::Held,
        (false, Mode::Auto | Mode::Always) => Plan::Auto {
            window_ms: client.fallback_after_ms(rule).value,
            input,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_mode(mode: Mode) -> Rule {
        Rule {
            mode,
            ..Rule::default()
        }
    }

    #[test]
    fn every_combination_has_its_plan() {
        let input = InputWhen::BeforeTask;
        for mode in [Mode::Always, Mode::Auto, Mode::Never] {
            for require_tasks in [false, true] {
                let rule = Rule {
                    require_tasks,
                    input,
                    ..with_mode(mode)
                };
                let undeclared = plan(&rule, false, false);
                assert_eq!(undeclared == Plan::Refuse, require_tasks);
                assert_eq!(undeclared == Plan::Held, !require_tasks);
                let expected = match mode {
                    Mode::Never => Plan::Held,
                    Mode::Auto => Plan::Auto {
                        window_ms: 2_000,
                        input,
                    },
                    Mode::Always => Plan::Always { input },
                };
                assert_eq!(plan(&rule, true, false), expected);
            }
        }
    }

    #[test]
    fn companion_tools_change_only_what_would_be_held() {
        let (input, client) = (InputWhen::InTask, ClientTerms::default());
        for mode in [Mode::Always, Mode::Auto, Mode::Never] {
            let rule = with_mode(mode);
            let expected = match mode {
                Mode::Never => Plan::Held,
                Mode::Auto | Mode::Always => Plan::Auto {
                    window_ms: 45_000,
                    input,
                },
            };
            assert_eq!(with_companion(&rule, client, input), expected);
            let refuses = Rule {
                require_tasks: true,
                ..rule
            };
            assert_eq!(with_companion(&refuses, client, input), Plan::Refuse);
        }
    }

    #[test]
    fn the_retry_of_a_question_before_the_task_is_the_task() {
        let rule = Rule {
            input: InputWhen::BeforeTask,
            ..with_mode(Mode::Always)
        };
        let input = InputWhen::InTask;
        assert_eq!(plan(&rule, true, true), Plan::Always { input });
    }
}
