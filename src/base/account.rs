//! On what shares and quotas count.

/// The account of a caller. All callers of one client that proved its identity have one account, so that a client
/// cannot multiply its share by headers that are not checked. Any other caller has an account of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Account([u8; 8]);

impl Account {
    /// The account of the caller with these bytes: their second half.
    pub const fn of([_, _, _, _, _, _, _, _, half @ ..]: [u8; 16]) -> Self {
        Self(half)
    }
}
