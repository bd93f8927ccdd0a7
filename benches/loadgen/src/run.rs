//! A measurement of repeated calls: warm up, count for a time, stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::calls::Caller;
use crate::client::{Client, Session};
use crate::options::{Options, Repeated};
use crate::preload::preload;
use crate::tally::Tally;
use crate::usage::Usage;

/// A caller waits this long after an error, so that a server that is gone is not asked as fast as possible.
const AFTER_ERROR: Duration = Duration::from_millis(5);

/// What was measured beside the calls.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    /// Used meanwhile.
    pub(crate) usage: Usage,
}

pub(crate) async fn load(what: Repeated, options: &Arc<Options>, tally: &Arc<Tally>) -> Measured {
    if what == Repeated::TaskGet
        && let Err(error) = preload(options, tally).await
    {
        tally.begin_counting();
        tally.fail(format!("preload: {error}"));
        return Measured::default();
    }
    let mut callers = JoinSet::new();
    for place in 0..options.concurrency {
        callers.spawn(call_until_stopped(
            what,
            place,
            Arc::clone(options),
            Arc::clone(tally),
        ));
    }
    sleep(options.warmup).await;
    let before = Usage::of(&options.pids);
    let began = Instant::now();
    tally.begin_counting();
    sleep(options.seconds).await;
    let took = Instant::now().saturating_duration_since(began);
    let usage = Usage::of(&options.pids).since(&before);
    tally.stop();
    // A call that does not come back is left behind.
    let all = async { while callers.join_next().await.is_some() {} };
    let _ = timeout(options.timeout + Duration::from_secs(5), all).await;
    Measured {
        seconds: took.as_secs_f64(),
        usage,
    }
}

async fn call_until_stopped(
    what: Repeated,
    place: usize,
    options: Arc<Options>,
    tally: Arc<Tally>,
) {
    let session = tally.session().unwrap_or(Session::NotOpened);
    let mut pace = Pace::of(&options, place);
    let mut was_counting = false;
    let mut caller = Caller {
        what,
        client: Client::new(&options, None).on_session(session),
        options,
        tally: Arc::clone(&tally),
        latencies_ns: Vec::with_capacity(1 << 16),
        draw: 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(place as u64 + 1),
    };
    while !tally.is_stopped() {
        let began = pace.next().await;
        let counts = tally.is_counting();
        if counts && !was_counting {
            caller.latencies_ns.clear();
            was_counting = true;
        }
        match caller.call(began).await {
            Ok(()) if counts && !tally.is_stopped() => tally.count_call(),
            Ok(()) => {}
            Err(error) => {
                tally.fail(error);
                caller.client.hang_up();
                sleep(AFTER_ERROR).await;
            }
        }
    }
    if was_counting {
        tally.add_latencies(&caller.latencies_ns);
    }
}

/// When a caller calls.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// As soon as it has its answer.
    Closed,
    /// At fixed times, whatever the answers take: a call that is late counts from when it was due.
    Open { every: Duration, due: Instant },
}

impl Pace {
    /// The callers of an open loop are spread evenly over its period.
    fn of(options: &Options, place: usize) -> Self {
        if options.rate <= 0.0 {
            return Self::Closed;
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "there are far fewer than 2^52 callers"
        )]
        let (callers, place) = (options.concurrency as f64, place as f64);
        let every = Duration::from_secs_f64(callers / options.rate);
        Self::Open {
            every,
            due: Instant::now() + every.mul_f64(place / callers),
        }
    }

    async fn next(&mut self) -> Instant {
        let now = Instant::now();
        match self {
            Self::Closed => now,
            Self::Open { every, due } => {
                let began = *due;
                *due += *every;
                if began <= now {
                    return began;
                }
                sleep_until(began).await;
                Instant::now()
            }
        }
    }
}
