//! Server-sent events. Pure.

/// Takes the first whole event with data off the front of `buffer`, and gives its data.
pub(crate) fn next_event(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        let (data, bytes) = first_event(buffer)?;
        buffer.drain(..bytes);
        if !data.is_empty() {
            return Some(data);
        }
    }
}

/// The data of the first event, and how many bytes the event takes.
fn first_event(buffer: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut bytes) = (Vec::new(), 0);
    for line in buffer.split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n")?;
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        bytes += line.len();
        if text.is_empty() {
            return Some((data, bytes));
        }
        if let Some(value) = text.strip_prefix(b"data:") {
            if !data.is_empty() {
                data.push(b'\n');
            }
            data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_when_they_are_whole() {
        let mut buffer = b"id: 1\n\n: hello\n\ndata: a\r\ndata:b\r\n\r\ndata: c\n".to_vec();
        assert_eq!(next_event(&mut buffer).as_deref(), Some(&b"a\nb"[..]));
        assert_eq!(next_event(&mut buffer), None);
        buffer.push(b'\n');
        assert_eq!(next_event(&mut buffer).as_deref(), Some(&b"c"[..]));
        assert!(buffer.is_empty());
    }
}
