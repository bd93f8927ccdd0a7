//! The keys and arguments of the commit script, in the order in which `commit.lua` reads them.

use super::Redis;
use crate::store::{ENDED_LENGTH, HistoryEntry, Version, Write};
use crate::task::id::TaskId;

impl Redis {
    pub(super) fn fill_commit(&self, command: &mut redis::Cmd, write: &Write) {
        let creates = write.expected.is_none();
        let leave = write
            .drop_from
            .as_ref()
            .filter(|left| Some(*left) != write.keep_for.as_ref());
        let indexes = || leave.into_iter().chain(&write.keep_for);
        let bucket = self.keys.bucket(write.id);
        let list = write.listed.filter(|_| creates);
        let list = list.map(|list| self.keys.list(bucket, &list));
        let request = write.request.as_ref();
        let history = write.history.as_ref();
        let optional = [list.is_some(), request.is_some(), history.is_some()].map(usize::from);
        command
            .arg(3 + indexes().count() + optional.iter().sum::<usize>())
            .arg(self.keys.task(write.id))
            .arg(self.keys.due(bucket))
            .arg(self.keys.log(bucket));
        for incarnation in indexes() {
            command.arg(self.keys.index(bucket, incarnation));
        }
        // The library writes no argument for `None`, so the number of keys above must not count it either.
        command.arg(&list);
        if request.is_some() {
            command.arg(self.keys.request(write.id));
        }
        if history.is_some() {
            command.arg(self.keys.history(bucket));
        }
        // The new revision is computed here, because numbers in Lua are exact only up to 2^53.
        match write.expected {
            None => command.arg("").arg("").arg(1),
            Some(Version { revision, nonce }) => command
                .arg(revision.0)
                .arg(&nonce.0.to_be_bytes()[..])
                .arg(revision.0.saturating_add(1)),
        };
        command
            .arg(&write.nonce.0.to_be_bytes()[..])
            .arg(write.record.as_ref())
            .arg(write.expires_ms);
        match write.due_ms {
            None => command.arg(""),
            Some(due_ms) => command.arg(due_ms),
        };
        // One argument in place of six, because each argument costs Redis more than most of the commands.
        let digits = [
            leave.is_some(),
            write.keep_for.is_some(),
            list.is_some(),
            request.is_some(),
            write.ends,
            history.is_some(),
        ];
        command
            .arg(write.id.text(&mut TaskId::text_buffer()))
            .arg(&digits.map(|is_set| b'0' + u8::from(is_set))[..]);
        if creates || request.is_some() {
            command.arg(&write.caller.as_bytes()[..]);
        }
        if let Some(request) = request {
            command.arg(request.as_ref());
        }
        if let Some(HistoryEntry { entry, expires_ms }) = history {
            let length = (ENDED_LENGTH / usize::from(self.keys.count())).max(1);
            command.arg(entry.as_ref()).arg(*expires_ms).arg(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::TOLD_MS;
    use crate::store::LOG_LENGTH;

    #[test]
    fn the_script_keeps_the_log_as_the_other_scripts_do() {
        let script = include_str!("commit.lua");
        for number in [LOG_LENGTH as u64, TOLD_MS] {
            assert!(script.contains(&format!("'{number}'")), "{number}");
        }
    }
}
