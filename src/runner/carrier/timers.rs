//! The timers of a carrier: one table of times. Pure: the caller passes the time in.

use tokio::time::Instant;

/// An action of a carrier at a set time. Timers that are due together are served in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Makes a record of the questions so far. Armed by the first question that comes before there is
    /// a record.
    Gather,
    /// Makes the call a task. Armed when the call begins, and again if the store did not take the task;
    /// disarmed when there is a record.
    GraceWindow,
    /// Commits the newest progress. Armed by news of a call that has a record.
    Progress,
    /// Commits the point from which another process can carry the call on. Armed when the server's stream
    /// becomes resumable.
    ResumePoint,
    /// Sends the next leg. Armed when a modern server ended a leg without a question.
    NextLeg,
    /// Joins the queue for the server again. Armed when the commit that the leg goes out failed.
    Requeue,
    /// Reports the length of the queue to pollers. Armed while a call with a record is queued.
    QueueMessage,
    /// Allows another attempt to leave the call to other replicas. Armed when the commit of the last attempt
    /// failed.
    HandOver,
    /// Answers a client whose clock is about to end. Armed when the call begins.
    ClientsClock,
    /// Ends the call. Always armed.
    Deadline,
}

/// When each timer is due.
pub(super) struct Timers {
    deadline: Instant,
    /// The other timers that are armed, each once. Empty for most of the life of a call, of which thousands may run.
    armed: Vec<(Timer, Instant)>,
}

impl Timers {
    pub(super) fn until(deadline: Instant) -> Self {
        Self {
            deadline,
            armed: Vec::new(),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Arms the timer; of two times the last counts.
    pub(super) fn arm(&mut self, timer: Timer, at: Instant) {
        if timer == Timer::Deadline {
            self.deadline = at;
            return;
        }
        match self.armed.iter_mut().find(|(armed, _)| *armed == timer) {
            Some((_, due)) => *due = at,
            None => self.armed.push((timer, at)),
        }
    }

    pub(super) fn disarm(&mut self, timer: Timer) {
        self.armed.retain(|(armed, _)| *armed != timer);
        if self.armed.is_empty() {
            self.armed = Vec::new();
        }
    }

    /// When the timer is due; `None`: it is not armed.
    pub(super) fn at(&self, timer: Timer) -> Option<Instant> {
        if timer == Timer::Deadline {
            return Some(self.deadline);
        }
        let mut armed = self.armed.iter();
        armed.find(|(armed, _)| *armed == timer).map(|(_, at)| *at)
    }

    /// Until when a client that does not read may delay the call.
    pub(super) fn patience(&self) -> Option<Instant> {
        let window = self.at(Timer::GraceWindow);
        window
            .map(|window| window.min(self.deadline))
            .or(Some(self.deadline))
    }

    /// Returns the time at which the next timer is due.
    pub(super) fn next(&self) -> Instant {
        let armed = self.armed.iter().map(|(_, at)| *at);
        armed.fold(self.deadline, Instant::min)
    }

    /// The first timer that is due at `now`, which is disarmed; else the deadline.
    pub(super) fn expire(&mut self, now: Instant) -> Timer {
        let due = self.armed.iter().filter(|(_, at)| *at <= now);
        let Some(timer) = due.map(|(timer, _)| *timer).min() else {
            return Timer::Deadline;
        };
        // Disarmed here, so that a timer which its action does not arm again is not served twice.
        self.disarm(timer);
        timer
    }
}

#[cfg(test)]
mod tests {
    use std::iter::successors;
    use std::time::Duration;

    use super::*;

    /// The timer that is served after this timer. The match makes sure that a new timer gets a position.
    fn after(timer: Timer) -> Option<Timer> {
        match timer {
            Timer::Gather => Some(Timer::GraceWindow),
            Timer::GraceWindow => Some(Timer::Progress),
            Timer::Progress => Some(Timer::ResumePoint),
            Timer::ResumePoint => Some(Timer::NextLeg),
            Timer::NextLeg => Some(Timer::Requeue),
            Timer::Requeue => Some(Timer::QueueMessage),
            Timer::QueueMessage => Some(Timer::HandOver),
            Timer::HandOver => Some(Timer::ClientsClock),
            Timer::ClientsClock => Some(Timer::Deadline),
            Timer::Deadline => None,
        }
    }

    #[test]
    fn timers_that_are_due_together_are_served_in_their_order_and_once() {
        let now = Instant::now();
        let mut timers = Timers::until(now);
        let order: Vec<Timer> = successors(Some(Timer::Gather), |timer| after(*timer)).collect();
        for timer in order.iter().rev() {
            timers.arm(*timer, now);
        }
        for timer in order {
            assert_eq!(timers.expire(now), timer);
        }
        assert_eq!(timers.expire(now), Timer::Deadline, "it stays armed");
    }

    #[test]
    fn the_earliest_time_is_the_next_and_only_what_is_due_expires() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut timers = Timers::until(at(100));
        assert_eq!(timers.next(), at(100));
        timers.arm(Timer::Gather, at(7));
        timers.arm(Timer::NextLeg, at(5));
        timers.arm(Timer::HandOver, at(3));
        assert_eq!(timers.next(), at(3));
        assert_eq!(timers.expire(at(4)), Timer::HandOver);
        assert_eq!((timers.next(), timers.at(Timer::HandOver)), (at(5), None));
        assert_eq!(timers.expire(at(6)), Timer::NextLeg);
        timers.arm(Timer::Gather, at(9));
        assert_eq!(
            timers.at(Timer::Gather),
            Some(at(9)),
            "the last time counts"
        );
        timers.disarm(Timer::Gather);
        assert_eq!((timers.next(), timers.at(Timer::Gather)), (at(100), None));
    }

    #[test]
    fn the_deadline_moves_and_is_never_disarmed() {
        let now = Instant::now();
        let mut timers = Timers::until(now);
        timers.disarm(Timer::Deadline);
        assert_eq!(timers.at(Timer::Deadline), Some(now));
        let later = now + Duration::from_secs(1);
        timers.arm(Timer::Deadline, later);
        assert_eq!((timers.deadline(), timers.next()), (later, later));
    }
}
