//! The output of a test's log.

use std::io;
use std::sync::Arc;

use crate::base::lock::Mutex;

#[derive(Clone, Default)]
pub(super) struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the text before the time of a line, and the text after it.
pub(super) fn without_time(line: &str) -> (String, String) {
    let (before, rest) = line.split_at(line.find("20").unwrap());
    let (_time, after) = rest.split_at(rest.find('Z').unwrap() + 1);
    (before.to_owned(), after.to_owned())
}
