//! Random bytes from the operating system, for keys and nonces.

use super::error::StoreError;

pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Unavailable(error.into()))?;
    Ok(bytes)
}
