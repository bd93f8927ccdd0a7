//! The links of one replica to the store and to the server: slow, cut for a while, or dead for ever.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::dice::Dice;

/// What the link does to one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The command arrives, and so does its answer.
    Through,
    /// The command does not arrive.
    Lost,
    /// The command arrives, its answer does not.
    AnswerLost,
}

/// The other end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Store,
    Server,
}

#[derive(Debug)]
pub(crate) struct Link {
    dice: Dice,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The process was killed: nothing that it began goes on.
    is_dead: bool,
    store: Cut,
    server: Cut,
    /// Of a hundred commands so many get lost, or their answers.
    loss: u64,
    /// Every command of the store arrives, and no answer does.
    store_is_mute: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cut {
    until: Option<Instant>,
    /// Commands get no answer at all until the link is back.
    hangs: bool,
}

impl State {
    fn cut(&mut self, end: End) -> &mut Cut {
        match end {
            End::Store => &mut self.store,
            End::Server => &mut self.server,
        }
    }
}

impl Link {
    pub(crate) fn new(dice: Dice) -> Self {
        let state = State {
            loss: 2,
            ..State::default()
        };
        Self {
            dice,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn kill(&self) {
        self.state.lock().unwrap().is_dead = true;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state.lock().unwrap().is_dead
    }

    pub(crate) fn cut(&self, end: End, length: Duration, hangs: bool) {
        *self.state.lock().unwrap().cut(end) = Cut {
            until: Some(Instant::now() + length),
            hangs,
        };
    }

    /// From now on the store gets every command and answers none.
    pub(crate) fn mute_store(&self) {
        self.state.lock().unwrap().store_is_mute = true;
    }

    /// From now on nothing is lost.
    pub(crate) fn heal(&self) {
        let mut state = self.state.lock().unwrap();
        state.store = Cut::default();
        state.server = Cut::default();
        state.loss = 0;
    }

    /// Waits as long as the way takes. Never resolves in a process that was killed.
    pub(crate) async fn way(&self, end: End) -> Fate {
        let slow = self.dice.percent(2);
        let delay = if slow {
            self.dice.millis(100, 1_500)
        } else {
            self.dice.millis(0, 20)
        };
        tokio::time::sleep(delay).await;
        self.alive().await;
        let (cut, loss, is_mute) = {
            let mut state = self.state.lock().unwrap();
            let is_mute = end == End::Store && state.store_is_mute;
            (*state.cut(end), state.loss, is_mute)
        };
        if is_mute {
            return Fate::AnswerLost;
        }
        if let Some(until) = cut.until.filter(|until| *until > Instant::now()) {
            if cut.hangs {
                tokio::time::sleep_until(until).await;
                self.alive().await;
            }
            return Fate::Lost;
        }
        match self.dice.below(100) {
            throw if throw < loss => Fate::Lost,
            throw if throw < loss * 2 => Fate::AnswerLost,
            _ => Fate::Through,
        }
    }

    pub(crate) async fn alive(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}
