//! The answers of one batch, on their way to the callers that wait for them.

use tokio::runtime::Handle;

use super::jobs::{JobOutcome, QueuedJob, WriteJob};

/// The answers of one batch, by the runtime of their callers.
///
/// To wake a thread of another runtime takes a system call, and the thread that is woken may take the processor away
/// from the writer. So each runtime is woken once, by a job that answers all callers there.
#[derive(Default)]
pub(super) struct WriteAnswers {
    of_runtimes: Vec<(Handle, Vec<WriteAnswer>)>,
}

type WriteAnswer = (WriteJob, JobOutcome);

impl WriteAnswers {
    pub(super) fn add(&mut self, QueuedJob { job, caller }: QueuedJob, outcome: JobOutcome) {
        let answer = (job, outcome);
        let mut known = self.of_runtimes.iter_mut();
        match known.find(|(runtime, _)| runtime.id() == caller.id()) {
            Some((_, answers)) => answers.push(answer),
            None => self.of_runtimes.push((caller, vec![answer])),
        }
    }

    pub(super) fn send(self) {
        for (runtime, answers) in self.of_runtimes {
            // One answer wakes its runtime once in any case, and a job around it would only cost more.
            if answers.len() < 2 {
                answer_all(answers);
            } else {
                // A runtime that has ended drops the answers: its callers have ended, too.
                drop(runtime.spawn(async move { answer_all(answers) }));
            }
        }
    }
}

fn answer_all(answers: Vec<WriteAnswer>) {
    for (job, outcome) in answers {
        job.answer(outcome);
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::oneshot;

    use super::*;
    use crate::store::StoreError;
    use crate::task::id::TaskId;

    type Waiting = oneshot::Receiver<Result<(), StoreError>>;

    #[test]
    fn callers_of_every_runtime_are_answered_and_those_of_an_ended_one_hold_up_nobody() {
        let [many, one, ended] = [(); 3].map(|()| Builder::new_current_thread().build().unwrap());
        let mut answers = WriteAnswers::default();
        let of_many = [(); 3].map(|()| asked(&mut answers, &many));
        let of_ended = [(); 2].map(|()| asked(&mut answers, &ended));
        let of_one = asked(&mut answers, &one);
        drop(ended);
        answers.send();
        for waiting in of_many {
            assert!(matches!(many.block_on(waiting), Ok(Ok(()))));
        }
        assert!(matches!(one.block_on(of_one), Ok(Ok(()))));
        for waiting in of_ended {
            assert!(one.block_on(waiting).is_err());
        }
    }

    fn asked(answers: &mut WriteAnswers, caller: &Runtime) -> Waiting {
        let (answer, waiting) = oneshot::channel();
        let job = WriteJob::Tell {
            id: TaskId::random(),
            answer,
        };
        let caller = caller.handle().clone();
        answers.add(QueuedJob { job, caller }, JobOutcome::Edited { told: None });
        waiting
    }
}
