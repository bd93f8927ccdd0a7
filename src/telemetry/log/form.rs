//! The form of a line of the log.

use std::io;

use tracing::{Metadata, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

use super::fields::fields;
use crate::base::printable::printable_json;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineForm {
    Text,
    /// Text for a terminal.
    Coloured,
    Json,
}

/// Returns the layer that writes events in this form.
pub(super) fn layer<S, W>(form: LineForm, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer();
    if form == LineForm::Json {
        let layer = layer.with_writer(PrintableLines(writer));
        return layer.json().flatten_event(true).boxed();
    }
    let layer = layer.with_writer(writer).fmt_fields(fields());
    layer.with_ansi(form == LineForm::Coloured).boxed()
}

/// The way of lines of JSON, each of which comes as a whole.
struct PrintableLines<W>(W);

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for PrintableLines<W> {
    type Writer = PrintableRecord<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        PrintableRecord(self.0.make_writer())
    }

    fn make_writer_for(&'w self, metadata: &Metadata<'_>) -> Self::Writer {
        PrintableRecord(self.0.make_writer_for(metadata))
    }
}

struct PrintableRecord<W>(W);

impl<W: io::Write> io::Write for PrintableRecord<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match str::from_utf8(line) {
            Ok(text) => self.0.write_all(printable_json(text).as_bytes())?,
            Err(_) => self.0.write_all(line)?,
        }
        // The caller compares this with the bytes that it gave, and not with those of the escaped line.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
