//! Where `concurrency` and `queue` are written, and what they count.

use raincheck::task::policy::{Concurrency, Limit};

use super::from_file;

fn limit(at_once: usize, queue: usize) -> Limit {
    Limit { at_once, queue }
}

#[test]
fn where_it_is_written_says_what_is_counted_together() {
    let config = from_file(
        "[upstream]\nconcurrency = 8\n[tasks]\nconcurrency = 3\nqueue = 5\n\
         [[tools]]\nname = 'build_*'\nconcurrency = 1\n\
         [[tools]]\nname = 'deploy'\nqueue = 0\n",
    );
    let of = |tool| config.rules.for_tool(tool).0.concurrency;
    assert_eq!(config.upstream.concurrency, Some(limit(8, 256)));
    assert_eq!(of("any"), Some(Concurrency::EachTool(limit(3, 5))));
    assert_eq!(of("build_all"), Some(Concurrency::Together(limit(1, 5))));
    assert_eq!(of("deploy"), Some(Concurrency::EachTool(limit(3, 0))));
}

#[test]
fn nothing_is_limited_unless_it_is_said() {
    let config = from_file("[tasks]\nqueue = 7\n[[tools]]\nname = 'a'\nconcurrency = 2\n");
    let of = |tool| config.rules.for_tool(tool).0.concurrency;
    assert_eq!(config.upstream.concurrency, None);
    assert_eq!(of("b"), None);
    assert_eq!(of("a"), Some(Concurrency::Together(limit(2, 7))));
}
