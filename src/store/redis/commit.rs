//! The keys and arguments of the commit script, in the order in which `commit.lua` reads them.

use super::Redis;
use crate::store::{LOG_LENGTH, Version, Write};
use crate::task::id::TaskId;

impl Redis {
    pub(super) fn fill_commit(&self, command: &mut redis::Cmd, write: &Write) {
        let leave = write
            .drop_from
            .as_ref()
            .filter(|left| Some(*left) != write.keep_for.as_ref());
        let indexes = || leave.into_iter().chain(&write.keep_for);
        let bucket = self.keys.bucket(write.id);
        let list = write.listed.filter(|_| write.expected.is_none());
        let list = list.map(|list| self.keys.list(bucket, &list));
        command
            .arg(4 + indexes().count() + usize::from(list.is_some()))
            .arg(self.keys.task(write.id))
            .arg(self.keys.request(write.id))
            .arg(self.keys.due(bucket))
            .arg(self.keys.log(bucket));
        for incarnation in indexes() {
            command.arg(self.keys.index(bucket, incarnation));
        }
        command.arg(&list);
        match write.expected {
            None => command.arg("").arg("").arg(1),
            Some(Version { revision, nonce }) => command
                .arg(revision.0)
                .arg(&nonce.0.to_be_bytes()[..])
                .arg(revision.0.saturating_add(1)),
        };
        command
            .arg(&write.nonce.0.to_be_bytes()[..])
            .arg(&write.caller.as_bytes()[..])
            .arg(write.record.as_ref())
            .arg(write.expires_ms);
        match write.due_ms {
            None => command.arg(""),
            Some(due_ms) => command.arg(due_ms),
        };
        command
            .arg(write.id.text(&mut TaskId::text_buffer()))
            .arg(u8::from(leave.is_some()))
            .arg(u8::from(write.keep_for.is_some()))
            .arg(LOG_LENGTH)
            .arg(u8::from(list.is_some()))
            .arg(u8::from(write.ends));
        if let Some(request) = &write.request {
            command.arg(request.as_ref());
        }
    }
}
