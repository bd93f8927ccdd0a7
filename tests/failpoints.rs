//! The program crashes at each of its named points (`src/base/failpoint.rs`), on each durable store and in front of each
//! kind of server, and whoever comes after it makes good what was promised: no call runs twice unless the operator
//! said that it may, every task comes to its end, and nothing stays behind.
#![expect(
    clippy::disallowed_methods,
    reason = "tests own their tasks and environment"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "JSON is written where it is passed"
)]
#![expect(clippy::print_stdout, reason = "shown with a test that failed")]

#[path = "support/directory.rs"]
mod directory;
#[path = "support/events.rs"]
mod events;
#[path = "support/eventually.rs"]
mod eventually;
#[path = "support/http_request.rs"]
#[expect(dead_code, reason = "no server here answers byte by byte")]
mod http_request;
#[path = "support/hyper_server.rs"]
mod hyper_server;
#[path = "support/ports.rs"]
#[expect(dead_code, reason = "the address is asked for")]
mod ports;
#[expect(dead_code, reason = "no test here freezes or restarts a Redis")]
#[path = "support/redis.rs"]
mod redis_server;
#[path = "support/scripted.rs"]
#[expect(dead_code, reason = "no server here answers byte by byte")]
mod scripted;
#[expect(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the harness of the suite, of which a part is used"
)]
#[path = "suite/support/mod.rs"]
mod support;

#[path = "failpoints/crash.rs"]
mod crash;
#[path = "failpoints/left.rs"]
mod left;
#[path = "failpoints/plan.rs"]
mod plan;
#[path = "failpoints/scene.rs"]
mod scene;

use raincheck::base::failpoint::Point::{self, *};
use support::Era;

use scene::{Scene, Store};

/// One test a point, in a module named by store and server, and the list of what was crashed at.
macro_rules! crashes {
    ($module:ident, $store:expr, $era:expr, $($name:ident: $point:ident),* $(,)?) => {
        mod $module {
            use super::*;

            pub(super) const POINTS: &[Point] = &[$($point,)*];

            $(#[tokio::test]
            async fn $name() {
                Scene::play($point, $store, $era).await;
            })*
        }
    };
}

crashes!(
    redb_legacy, Store::Redb, Era::Legacy,
    create_before: CreateBefore, create_after: CreateAfter, answered: Answered,
    sent_before: SentBefore, sent_after: SentAfter, first_byte: FirstByte,
    event_progress: EventProgress, event_log: EventLog, event_question: EventQuestion,
    event_result: EventResult, event_error: EventError, event_failed: EventFailed,
    result_before: ResultBefore, result_after: ResultAfter,
    end_before: EndBefore, end_after: EndAfter,
    claim_after: ClaimAfter, resume_before: ResumeBefore,
    answer_committed: AnswerCommitted, delivered: Delivered,
    job_started: JobStarted, job_stored: JobStored,
);

crashes!(
    redb_modern, Store::Redb, Era::Modern,
    create_before: CreateBefore, create_after: CreateAfter, answered: Answered,
    sent_before: SentBefore, sent_after: SentAfter, first_byte: FirstByte,
    event_progress: EventProgress, event_log: EventLog,
    event_result: EventResult, event_error: EventError, event_failed: EventFailed,
    result_before: ResultBefore, result_after: ResultAfter,
    end_before: EndBefore, end_after: EndAfter,
    claim_after: ClaimAfter, answer_committed: AnswerCommitted,
    job_started: JobStarted, job_stored: JobStored,
);

crashes!(
    redis_legacy, Store::Redis, Era::Legacy,
    create_before: CreateBefore, create_after: CreateAfter, answered: Answered,
    sent_before: SentBefore, sent_after: SentAfter, first_byte: FirstByte,
    event_progress: EventProgress, event_log: EventLog, event_question: EventQuestion,
    event_result: EventResult, event_error: EventError, event_failed: EventFailed,
    result_before: ResultBefore, result_after: ResultAfter,
    end_before: EndBefore, end_after: EndAfter,
    claim_after: ClaimAfter, resume_before: ResumeBefore,
    answer_committed: AnswerCommitted, delivered: Delivered, released: Released,
    job_started: JobStarted, job_stored: JobStored,
);

crashes!(
    redis_modern, Store::Redis, Era::Modern,
    create_before: CreateBefore, create_after: CreateAfter, answered: Answered,
    sent_before: SentBefore, sent_after: SentAfter, first_byte: FirstByte,
    event_progress: EventProgress, event_log: EventLog,
    event_result: EventResult, event_error: EventError, event_failed: EventFailed,
    result_before: ResultBefore, result_after: ResultAfter,
    end_before: EndBefore, end_after: EndAfter,
    claim_after: ClaimAfter, answer_committed: AnswerCommitted, released: Released,
    job_started: JobStarted, job_stored: JobStored,
);

/// Where a point cannot be come to, and why.
const NEVER: &[(Point, Option<Store>, Option<Era>, &str)] = &[
    (
        EventQuestion,
        None,
        Some(Era::Modern),
        "a modern server asks by the result that ends its leg: event.result",
    ),
    (
        ResumeBefore,
        None,
        Some(Era::Modern),
        "a modern stream that was cut cannot be come back to",
    ),
    (
        Delivered,
        None,
        Some(Era::Modern),
        "answers ride on the next leg: nothing is delivered on its own",
    ),
    (
        Released,
        Some(Store::Redb),
        None,
        "a file has one process: there is nobody to leave a task to",
    ),
];

#[test]
fn every_point_is_crashed_at_wherever_it_can_be() {
    let played = [
        (Store::Redb, Era::Legacy, redb_legacy::POINTS),
        (Store::Redb, Era::Modern, redb_modern::POINTS),
        (Store::Redis, Era::Legacy, redis_legacy::POINTS),
        (Store::Redis, Era::Modern, redis_modern::POINTS),
    ];
    for (store, era, points) in played {
        for point in Point::ALL {
            let never = NEVER.iter().find(|(never, on, before, _)| {
                never == point && on.is_none_or(|s| s == store) && before.is_none_or(|e| e == era)
            });
            let plays = points.iter().filter(|played| *played == point).count();
            let wanted = usize::from(never.is_none());
            assert_eq!(plays, wanted, "{point:?} on {store:?}, {era:?}: {never:?}");
        }
    }
}
