//! Named places where a build with the feature `failpoints` can be set to crash. Tests crash at every place to show
//! that no promise breaks.
//!
//! Such a build reads `RAINCHECK_CRASH=<point>:<n>` once, when it starts to serve, and aborts the n-th time
//! that it passes the point. In every other build a hit compiles to nothing.

macro_rules! points {
    ($($point:ident = $name:literal, $meaning:literal;)*) => {
        /// All failpoints. Each point is at one place of the source.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Point {
            $(#[doc = $meaning] $point,)*
        }

        impl Point {
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// The name as it is written in `RAINCHECK_CRASH`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }
        }
    };
}

points! {
    CreateBefore = "create.before", "The record is about to be made.";
    CreateAfter = "create.after", "The record is made, and nobody was told.";
    Answered = "answered", "The answer is handed to the client's connection.";
    SentBefore = "sent.before", "A leg is about to be sent.";
    SentAfter = "sent.after", "The connection to the server takes the call.";
    FirstByte = "first_byte", "The head of the server's response to the call is there.";
    EventProgress = "event.progress", "The server told of progress.";
    EventLog = "event.log", "The server told of something else.";
    EventQuestion = "event.question", "A legacy server asks in the middle of its call.";
    EventResult = "event.result", "The server answered with a result.";
    EventError = "event.error", "The server answered with an error.";
    EventFailed = "event.failed", "The call came to nothing at the server.";
    ResultBefore = "result.before", "A large result is about to be kept.";
    ResultAfter = "result.after", "A large result is kept, and no record names it.";
    EndBefore = "end.before", "The end of a task is about to be committed.";
    EndAfter = "end.after", "The end of a task is committed.";
    ClaimAfter = "claim.after", "A lost owner's task is this replica's by commit.";
    ResumeBefore = "resume.before", "The rest of a cut stream is about to be asked for.";
    AnswerCommitted = "answer.committed", "The client's answers are committed.";
    JobStarted = "job.started", "A job was started at the server, and nothing names it.";
    JobStored = "job.stored", "The record names the job, and where to follow it.";
    Delivered = "delivered", "The server has an answer, and the record does not say so.";
    Released = "released", "A drain has left the task to others.";
}

#[cfg(feature = "failpoints")]
pub use armed::{arm, hit};

/// Does nothing without the feature.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn hit(_point: Point) {}

#[cfg(feature = "failpoints")]
mod armed {
    use std::io::Write as _;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Point;

    #[derive(Debug)]
    struct Armed {
        point: Point,
        left: AtomicU32,
    }

    static ARMED: OnceLock<Armed> = OnceLock::new();

    /// Reads `RAINCHECK_CRASH`. An unknown point is an error, because a test with a misspelt point would look
    /// like a test that never reached the point.
    pub fn arm() -> Result<(), String> {
        #[expect(
            clippy::disallowed_methods,
            reason = "no setting of the program: it is not there in what is released"
        )]
        let Ok(text) = std::env::var("RAINCHECK_CRASH") else {
            return Ok(());
        };
        let armed =
            parse(&text).ok_or_else(|| format!("RAINCHECK_CRASH: {text:?} is not <point>:<n>"))?;
        ARMED
            .set(armed)
            .map_err(|_| "RAINCHECK_CRASH was read before".to_owned())
    }

    fn parse(text: &str) -> Option<Armed> {
        let (name, left) = text.split_once(':')?;
        let point = Point::ALL.iter().find(|point| point.name() == name)?;
        let left = left.parse().ok().filter(|left| *left > 0)?;
        Some(Armed {
            point: *point,
            left: AtomicU32::new(left),
        })
    }

    /// Aborts the process if it was set to crash at this pass of this point. No destructor runs.
    pub fn hit(point: Point) {
        if let Some(armed) = ARMED.get()
            && armed.point == point
            && armed.left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            // The log has a thread that writes its lines, and that thread ends with the process.
            let line = format!("crashing as told point={:?}\n", point.name());
            let _ = std::io::stderr().write_all(line.as_bytes());
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Point;

    #[test]
    fn each_point_has_a_name_of_its_own() {
        let names: BTreeSet<_> = Point::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Point::ALL.len());
    }
}
