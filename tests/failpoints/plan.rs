//! What is done so that the program comes to a point, and what must be true when all is over.

use raincheck::base::failpoint::Point::{self, *};

use super::support::Era;

/// How the program is brought to the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// A call is enough.
    Call,
    /// The call runs and can be resumed where its server allows that; then it is let go on.
    LetGoOn,
    /// Its question is answered.
    Answer,
    /// The process is told to stop.
    Stop,
    /// The process is killed, and the next one comes to the point.
    Recovery,
}

/// What becomes of the task, if its client knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Nobody can: there never was one.
    Unknown,
    Completed(&'static str),
    /// With the result of 64 KiB.
    CompletedBig,
    /// The server's own error.
    Error,
    /// `failed`, the effect unknown.
    Lost,
    /// One or the other: it depends on which of two commits was first.
    CompletedOrLost,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) way: Way,
    /// What the tool does when it is let go on.
    pub(crate) then: &'static str,
    pub(crate) end: End,
    /// How often the call reached the server: at least, at most.
    pub(crate) runs: (u32, u32),
    /// The server's stream can be come back to.
    pub(crate) resumable: bool,
}

impl Plan {
    pub(crate) fn of(point: Point, era: Era) -> Self {
        // A modern stream cannot be resumed: what was sent and not ended is lost.
        let resumed = |end| match era {
            Era::Legacy => end,
            Era::Modern => End::Lost,
        };
        let stepped = End::Completed("stepped");
        let (way, then, end, runs) = match point {
            CreateBefore => (Way::Call, "", End::Unknown, (0, 0)),
            CreateAfter | SentBefore => (Way::Call, "", End::Lost, (0, 0)),
            // The client is told beside the sending, and bytes may or may not have left the process.
            Answered | SentAfter => (Way::Call, "", End::Lost, (0, 1)),
            // Nothing names a job that was only started.
            FirstByte | JobStarted => (Way::Call, "", End::Lost, (1, 1)),
            // Where to resume is written a moment after the stream began.
            EventProgress => (Way::Call, "", resumed(End::CompletedOrLost), (1, 1)),
            EventLog => (Way::LetGoOn, "log", resumed(stepped), (1, 1)),
            EventQuestion => (Way::LetGoOn, "ask", End::Completed("Ada"), (1, 1)),
            EventResult | EndBefore => (Way::LetGoOn, "", resumed(stepped), (1, 1)),
            EventError => (Way::LetGoOn, "error", resumed(End::Error), (1, 1)),
            EventFailed => (Way::LetGoOn, "break", End::Lost, (1, 1)),
            ResultBefore | ResultAfter => (Way::LetGoOn, "big", resumed(End::CompletedBig), (1, 1)),
            EndAfter => (Way::LetGoOn, "", stepped, (1, 1)),
            // Where it cannot be resumed the operator said that it may run again, and it does.
            ClaimAfter | ResumeBefore => (Way::Recovery, "", stepped, rerun(era)),
            JobStored => (Way::Call, "", End::Completed("the result of a"), (1, 1)),
            Released => (Way::Stop, "", stepped, rerun(era)),
            AnswerCommitted | Delivered => {
                (Way::Answer, "ask", resumed(End::Completed("Ada")), (1, 1))
            }
        };
        Self {
            way,
            then,
            end,
            runs,
            // A server that lets its streams be resumed does not lose them.
            resumable: point != EventFailed,
        }
    }

    /// The tool that is called.
    pub(crate) fn tool(point: Point) -> &'static str {
        if matches!(point, JobStarted | JobStored) {
            "job_start"
        } else {
            "steps"
        }
    }

    /// The operator's rule under which the point can be come to.
    pub(crate) fn rule(&self, era: Era) -> &'static str {
        match (era, self.way) {
            (Era::Modern, Way::Recovery | Way::Stop) => "on_owner_lost = \"rerun\"",
            _ => "",
        }
    }
}

fn rerun(era: Era) -> (u32, u32) {
    match era {
        Era::Legacy => (1, 1),
        Era::Modern => (2, 2),
    }
}

/// How often the parked call beside it came by before: in front of a modern server there is one.
pub(crate) fn passed_before(point: Point, era: Era) -> u32 {
    let passed = matches!(
        point,
        CreateBefore | CreateAfter | Answered | SentBefore | SentAfter | FirstByte | EventResult
    );
    u32::from(passed && era == Era::Modern)
}
