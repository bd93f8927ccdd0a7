//! How a line of the log is written.

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

use super::fields::fields;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineForm {
    Text,
    /// Text for a terminal.
    Coloured,
    Json,
}

/// What writes events in this form.
pub(super) fn layer<S, W>(form: LineForm, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match form {
        LineForm::Json => layer.json().flatten_event(true).boxed(),
        LineForm::Text => layer.with_ansi(false).fmt_fields(fields()).boxed(),
        LineForm::Coloured => layer.with_ansi(true).fmt_fields(fields()).boxed(),
    }
}
