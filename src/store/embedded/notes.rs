//! Notes.

use async_trait::async_trait;
use bytes::Bytes;

use super::Embedded;
use crate::store::StoreError;
use crate::store::notes::{Name, Notes};

#[async_trait]
impl Notes for Embedded {
    async fn claim(
        &self,
        _name: Name,
        _value: Bytes,
        _expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        Err(StoreError::Full)
    }

    async fn put(&self, _name: Name, _value: Bytes, _expires_ms: u64) -> Result<(), StoreError> {
        Err(StoreError::Full)
    }

    async fn find(&self, _name: Name) -> Result<Option<Bytes>, StoreError> {
        Err(StoreError::Full)
    }

    async fn remove(&self, _name: Name) -> Result<(), StoreError> {
        Err(StoreError::Full)
    }

    async fn append(
        &self,
        _log: Name,
        _number: u64,
        _entry: Bytes,
        _expires_ms: u64,
    ) -> Result<(), StoreError> {
        Err(StoreError::Full)
    }

    async fn entries(&self, _log: Name, _after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        Err(StoreError::Full)
    }
}
