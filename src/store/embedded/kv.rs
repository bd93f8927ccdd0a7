//! Values and logs in the file.

use async_trait::async_trait;
use bytes::Bytes;
use redb::{Database, ReadableDatabase as _};

use super::Embedded;
use super::jobs::WriteJob;
use super::kv_tables::{KvEdit, LogAppend, key};
use super::pieces::whole;
use super::rows::{ENTRIES, PIECES, VALUES};
use super::tables::TableEdit;
use crate::store::error::StoreError;
use crate::store::kv::{KvStore, Name};
use crate::task::id::Fence;

#[async_trait]
impl KvStore for Embedded {
    async fn claim(
        &self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        self.write(|answer| WriteJob::Claim {
            name,
            value,
            expires_ms,
            answer,
        })
        .await
    }

    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError> {
        let put = KvEdit::Put {
            name,
            value,
            expires_ms,
        };
        self.edit(TableEdit::Kv(put)).await
    }

    async fn replace(
        &self,
        name: Name,
        expected: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        self.write(|answer| WriteJob::Replace {
            name,
            expected,
            value,
            expires_ms,
            answer,
        })
        .await
    }

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        let now_ms = self.clock.now_ms();
        self.read_blocking(move |database| value(database, name, now_ms))
            .await
    }

    async fn remove(&self, name: Name) -> Result<(), StoreError> {
        self.edit(TableEdit::Kv(KvEdit::Remove { name })).await
    }

    async fn append(
        &self,
        log: Name,
        fence: Fence,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        self.write(|answer| WriteJob::Append {
            append: LogAppend {
                log,
                fence,
                number,
                entry,
                expires_ms,
            },
            answer,
        })
        .await
    }

    async fn fence(&self, log: Name, fence: Fence, expires_ms: u64) -> Result<(), StoreError> {
        let fence = KvEdit::Fence {
            log,
            fence,
            expires_ms,
        };
        self.edit(TableEdit::Kv(fence)).await
    }

    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError> {
        self.edit(TableEdit::Kv(KvEdit::Trim { log, first })).await
    }

    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        let now_ms = self.clock.now_ms();
        self.read_blocking(move |database| behind(database, log, after, now_ms))
            .await
    }
}

fn value(database: &Database, name: Name, now_ms: u64) -> Result<Option<Bytes>, redb::Error> {
    // The row does not keep its page from being freed; the transaction does.
    let transaction = database.begin_read()?;
    let found = transaction.open_table(VALUES)?.get(&key(name))?;
    Ok(found.and_then(|row| match row.value() {
        (until_ms, Some(value)) if until_ms > now_ms => Some(Bytes::copy_from_slice(value)),
        _ => None,
    }))
}

fn behind(
    database: &Database,
    log: Name,
    after: u64,
    now_ms: u64,
) -> Result<Vec<(u64, Bytes)>, redb::Error> {
    let key = key(log);
    let transaction = database.begin_read()?;
    let until_ms = transaction.open_table(VALUES)?.get(&key)?;
    // The entries of an expired log are there until a sweep removes them.
    if until_ms.is_none_or(|row| row.value().0 <= now_ms) {
        return Ok(Vec::new());
    }
    let pieces = transaction.open_table(PIECES)?;
    let table = transaction.open_table(ENTRIES)?;
    // Number 0 of a log holds its fence, so no range begins below 1.
    let rows = table.range((&key, after.saturating_add(1))..=(&key, u64::MAX))?;
    rows.map(|row| {
        let (place, entry) = row?;
        let number = place.value().1;
        Ok((number, whole(&pieces, &key, number, entry.value())?))
    })
    .collect()
}
