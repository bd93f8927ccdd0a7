//! A table that is opened when a write first needs it.

use redb::{Key, Table, TableDefinition, Value, WriteTransaction};

/// A table of one transaction.
///
/// redb looks up and checks the definition of a table each time that a transaction opens it, which costs more than a
/// row. A write of a task needs a few of the tables only.
pub(super) struct LazyTable<'t, K: Key + 'static, V: Value + 'static> {
    transaction: &'t WriteTransaction,
    definition: TableDefinition<'static, K, V>,
    opened: Option<Table<'t, K, V>>,
}

impl<'t, K: Key + 'static, V: Value + 'static> LazyTable<'t, K, V> {
    pub(super) fn new(
        transaction: &'t WriteTransaction,
        definition: TableDefinition<'static, K, V>,
    ) -> Self {
        Self {
            transaction,
            definition,
            opened: None,
        }
    }

    /// The table. Creates it if the file does not have it.
    pub(super) fn open(&mut self) -> Result<&mut Table<'t, K, V>, redb::Error> {
        // Taken out and put back, because `get_or_insert_with` cannot return the error of an open.
        let table = match self.opened.take() {
            Some(table) => table,
            None => self.transaction.open_table(self.definition)?,
        };
        Ok(self.opened.insert(table))
    }
}
