//! One sealed value: its form, and what becomes of a value that does not open.

use bytes::Bytes;
use tracing::warn;

use super::error::StoreError;
use super::kv::Name;
use super::seal::{Binding, Sealer, Unopened};
use crate::telemetry::metrics::METRICS;

/// The beginning of a sealed value, and of no other value. To a raincheck that cannot open values, such a record is
/// one of a newer raincheck, which it leaves alone: 9 stands where records have their format.
const HEAD: &[u8] = b"9 sealed ";

/// The handling of a value that is not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clear {
    /// It is read: other replicas do not seal yet, or did not until a short while ago.
    Read,
    /// It is refused: raincheck did not write it.
    Refused,
}

pub(super) fn seal(
    sealer: &Sealer,
    binding: &Binding<'_>,
    value: &[u8],
) -> Result<Bytes, StoreError> {
    let mut sealed = HEAD.to_vec();
    sealer.seal(binding, value, &mut sealed)?;
    Ok(sealed.into())
}

/// Returns `true` if the value is a sealed one.
pub(super) fn is_sealed(value: &[u8]) -> bool {
    value.starts_with(HEAD)
}

/// Opens what is sealed. What is not is read or refused.
pub(super) fn open(
    sealer: Option<&Sealer>,
    clear: Clear,
    binding: &Binding<'_>,
    mut value: Bytes,
) -> Result<Bytes, StoreError> {
    if !is_sealed(&value) {
        return match clear {
            Clear::Read => Ok(value),
            Clear::Refused => Err(refused(binding, None)),
        };
    }
    let sealed = value.split_off(HEAD.len());
    // The head shares its buffer with the rest. Once the head is gone, the rest is opened in place, without a copy.
    drop(value);
    let opened = match sealer {
        Some(sealer) => sealer.open(binding, sealed),
        None => Err(Unopened::UnknownKey),
    };
    opened.map_err(|why| refused(binding, Some(why)))
}

/// Counts and reports a value that is not read.
fn refused(binding: &Binding<'_>, why: Option<Unopened>) -> StoreError {
    let what = binding.kind;
    let (why, error) = match why {
        None => {
            warn!(
                what,
                "something in the store is not sealed; it is not believed. If the seal was turned on a short while ago, set store.seal = \"mixed\" until what was there before is gone"
            );
            ("clear", StoreError::Corrupt("a value that is not sealed"))
        }
        Some(Unopened::UnknownKey) => {
            warn!(
                what,
                "something in the store is sealed under a key that this replica does not have; see store.seal_key"
            );
            ("unknown_key", StoreError::UnknownKey)
        }
        Some(Unopened::Altered) => {
            warn!(
                what,
                "something in the store was altered or moved after it was sealed; it is not believed"
            );
            let error = StoreError::Corrupt("a sealed value that was altered or moved");
            ("altered", error)
        }
    };
    let refused = &METRICS.store.refused_values;
    refused.with_label_values(&[what, why]).inc();
    error
}

pub(super) fn of_value(name: &Name) -> Binding<'_> {
    Binding {
        kind: name.kind.word(),
        id: &name.digest,
        caller: &[],
        number: 0,
    }
}
