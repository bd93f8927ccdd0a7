//! Server-sent events as the HTML standard words them, line by line over the whole stream: slow, and easy to check.

use raincheck::mcp::sse::SseEvent;

/// The events of a stream, up to the first line that is not UTF-8, and whether there is no such line.
pub(crate) fn events(stream: &[u8]) -> (Vec<SseEvent>, bool) {
    let mut found = Vec::new();
    let (mut event, mut begun) = (SseEvent::default(), false);
    for (number, line) in lines(stream).into_iter().enumerate() {
        let Ok(line) = String::from_utf8(line) else {
            return (found, false);
        };
        let line = match line.strip_prefix('\u{feff}') {
            Some(rest) if number == 0 => rest.to_owned(),
            _ => line,
        };
        if line.is_empty() {
            let ended = std::mem::take(&mut event);
            if std::mem::take(&mut begun) {
                found.push(ended);
            }
            continue;
        }
        let (field, value) = match line.find(':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], ""),
        };
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => event.event = Some(value.to_owned()),
            "data" if event.has_data => event.data = format!("{}\n{value}", event.data),
            "data" => {
                value.clone_into(&mut event.data);
                event.has_data = true;
            }
            "id" if !value.contains('\0') => event.id = Some(value.to_owned()),
            "retry" => event.retry = value.parse().ok(),
            _ => continue,
        }
        begun = true;
    }
    (found, true)
}

/// The lines that have an end: CR LF, LF or CR.
fn lines(stream: &[u8]) -> Vec<Vec<u8>> {
    let (mut lines, mut line, mut at) = (Vec::new(), Vec::new(), 0);
    while at < stream.len() {
        match (stream[at], stream.get(at + 1)) {
            (b'\r', Some(b'\n')) => {
                at += 1;
                lines.push(std::mem::take(&mut line));
            }
            (b'\r' | b'\n', _) => lines.push(std::mem::take(&mut line)),
            (byte, _) => line.push(byte),
        }
        at += 1;
    }
    lines
}
