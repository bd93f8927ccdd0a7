//! Which rule applies, and the plan of each call.

use super::*;

fn globs(patterns: &[&str]) -> Vec<Glob> {
    let parsed = patterns.iter().map(|pattern| Glob::parse(pattern).unwrap());
    parsed.collect()
}

fn with_mode(mode: Mode) -> Rule {
    Rule {
        mode,
        ..Rule::default()
    }
}

#[test]
fn the_first_rule_that_matches_wins() {
    let rules = Rules::new(
        Rule::default(),
        vec![
            (globs(&["build_docs"]), with_mode(Mode::Never)),
            (globs(&["build_*", "deploy"]), with_mode(Mode::Always)),
        ],
    );
    let seen = |name| {
        let (rule, place) = rules.for_tool(name);
        (rule.mode, place)
    };
    assert_eq!(seen("build_docs"), (Mode::Never, Some(0)));
    assert_eq!(seen("build_all"), (Mode::Always, Some(1)));
    assert_eq!(seen("deploy"), (Mode::Always, Some(1)));
    assert_eq!(seen("deploy2"), (Mode::Auto, None));
}

#[test]
fn an_entry_behind_a_wider_one_is_found_and_so_is_one_without_tools() {
    let entry = |patterns: &[&str]| (globs(patterns), Rule::default());
    let rules = Rules::new(
        Rule::default(),
        vec![
            entry(&["build_*"]),
            entry(&["build_docs", "build_d*"]),
            entry(&["build_docs", "deploy"]),
            entry(&["*"]),
            entry(&["drop"]),
        ],
    );
    assert_eq!(rules.hidden(), [(1, 0), (4, 3)]);
    let names = ["deploy", "list"].map(str::to_owned);
    let without: Vec<usize> = rules.without_tools(&names).collect();
    assert_eq!(without, [0, 1, 4]);
}

#[test]
fn the_poll_interval_doubles_with_age_up_to_fifteen_seconds() {
    let at = |age_ms| poll_interval_at(2_000, age_ms);
    assert_eq!(at(0), 2_000);
    assert_eq!(at(3_999), 2_000);
    assert_eq!(at(4_000), 4_000);
    assert_eq!(at(8_000), 8_000);
    assert_eq!(at(16_000), 15_000);
    assert_eq!(at(u64::MAX), 15_000);
}

#[test]
fn a_poll_interval_above_the_ceiling_is_the_operators_wish() {
    assert_eq!(poll_interval_at(60_000, 0), 60_000);
    assert_eq!(poll_interval_at(60_000, u64::MAX), 60_000);
}

#[test]
fn the_poll_interval_never_falls_and_never_hangs() {
    for base in [0, 1, 7, 200, 14_999, 15_000, 15_001, u64::MAX] {
        let mut last = 0;
        for age in (0..200_000).step_by(97) {
            let interval = poll_interval_at(base, age);
            assert!(interval >= last && interval >= base && interval > 0);
            last = interval;
        }
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
    let input = InputWhen::InTask;
    for mode in [Mode::Always, Mode::Auto, Mode::Never] {
        let rule = with_mode(mode);
        let expected = match mode {
            Mode::Never => Plan::Held,
            Mode::Auto | Mode::Always => Plan::Auto {
                window_ms: 45_000,
                input,
            },
        };
        assert_eq!(with_companion(&rule, input), expected);
        let refuses = Rule {
            require_tasks: true,
            ..rule
        };
        assert_eq!(with_companion(&refuses, input), Plan::Refuse);
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

#[test]
fn a_task_lives_as_long_as_it_may_run_and_then_its_retention() {
    assert_eq!(Rule::default().ttl_ms(), 7_200_000);
}
