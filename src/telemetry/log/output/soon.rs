//! The path of the lines that gather: from the thread that logs them to all waiting lines.

use super::gathered::{GATHERED_MAX, GatheredLines};
use super::{ENOUGH, Output};

impl Output {
    /// Writes a line with others, soon. `write` adds it to those of this thread.
    pub(in crate::telemetry::log) fn say_soon(&self, write: impl FnOnce(&mut GatheredLines)) {
        let mut own = self.gathered.here().lock();
        let had = own.bytes.len();
        write(&mut own);
        if own.bytes.len() >= GATHERED_MAX {
            return self.hand_over(&mut own, had);
        }
        drop(own);
        // Only the first line of a batch wakes the thread, which finds the others with it.
        if had == 0 {
            let mut waiting = self.waiting.lock();
            let sleeps = waiting.is_nothing();
            // A `collect` in between may have taken the line. Then the thread wakes up once without need.
            waiting.are_gathered = true;
            drop(waiting);
            if sleeps {
                self.comes.notify_one();
            }
        }
    }

    /// Hands over what this thread has gathered. Without room, its last line is lost, which begins at `last`.
    fn hand_over(&self, own: &mut GatheredLines, last: usize) {
        let mut waiting = self.waiting.lock();
        if !waiting.has_room(own.bytes.len()) {
            own.bytes.truncate(last);
            return waiting.lose();
        }
        let (sleeps, had) = (waiting.is_nothing(), waiting.lines.len());
        waiting.push(&own.bytes);
        own.bytes.clear();
        // Only the line that crosses the bound wakes the thread.
        let is_enough = had < ENOUGH && waiting.lines.len() >= ENOUGH;
        drop(waiting);
        if sleeps || is_enough {
            self.comes.notify_one();
        }
    }

    /// Takes what the threads have gathered. Returns whether there was room for all of it.
    pub(super) fn collect(&self) -> bool {
        // A line that comes from now on sets it again.
        self.waiting.lock().are_gathered = false;
        let mut is_all = true;
        for own in self.gathered.all() {
            let mut own = own.lock();
            if own.bytes.is_empty() {
                continue;
            }
            let mut waiting = self.waiting.lock();
            if waiting.has_room(own.bytes.len()) {
                waiting.push(&own.bytes);
                own.bytes.clear();
            } else {
                waiting.are_gathered = true;
                is_all = false;
            }
        }
        is_all
    }
}
