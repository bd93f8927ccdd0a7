//! The wire format of protobuf, as far as spans need it.

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;
const FIXED32: u8 = 5;

/// The bit of a byte that others follow.
const MORE: u8 = 0x80;

/// The longest length that takes one byte.
pub(super) const LENGTH_BYTE_MAX: usize = 0x7f;

/// A string, or bytes.
#[inline]
pub(super) fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    begin(out, field, value.len());
    out.extend_from_slice(value);
}

#[inline]
pub(super) fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    key(out, field, VARINT);
    varint(out, value);
}

#[inline]
pub(super) fn fixed32(out: &mut Vec<u8>, field: u8, value: u32) {
    key(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A message within a message, which is nearly always below 128 bytes.
#[inline]
pub(super) fn nested(out: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    with_room::<1>(out, field, write);
}

/// A message within a message, which nearly always has 128 bytes or more, and less than 16 KiB.
#[inline]
pub(super) fn nested_long(out: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    with_room::<2>(out, field, write);
}

/// Leaves so much room for the length. A message whose length needs another room is moved.
#[inline]
fn with_room<const ROOM: usize>(out: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    key(out, field, LENGTH);
    let at = out.len();
    // The length is known only after the message is written, so its place is kept free.
    out.extend_from_slice(&[0; ROOM]);
    let begin = out.len();
    write(out);
    let length = (out.len() - begin) as u64;
    match out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<ROOM>) {
        Some(room) if takes::<ROOM>(length) => *room = in_room(length),
        _ => {
            let mut written = Vec::new();
            varint(&mut written, length);
            out.splice(at..begin, written);
        }
    }
}

/// Returns `true` if a length takes exactly so many bytes.
fn takes<const BYTES: usize>(length: u64) -> bool {
    let least = if BYTES == 1 {
        0
    } else {
        1 << (7 * (BYTES - 1))
    };
    (least..1 << (7 * BYTES)).contains(&length)
}

/// A length that takes so many bytes.
fn in_room<const BYTES: usize>(mut length: u64) -> [u8; BYTES] {
    let mut room = [0; BYTES];
    for place in &mut room {
        let rest = length >> 7;
        let more = if rest > 0 { MORE } else { 0 };
        *place = low(length) & !MORE | more;
        length = rest;
    }
    room
}

// The beginnings of fields whose number takes one byte.

/// Of a field that has a length.
pub(super) const fn length_key(field: u8) -> u8 {
    field << 3 | LENGTH
}

pub(super) const fn number_key(field: u8) -> u8 {
    field << 3 | VARINT
}

pub(super) const fn fixed64_key(field: u8) -> u8 {
    field << 3 | FIXED64
}

/// The beginning of a message of so many bytes within a message.
#[inline]
pub(super) fn begin(out: &mut Vec<u8>, field: u8, length: usize) {
    key(out, field, LENGTH);
    varint(out, length as u64);
}

/// The length of a message with one field, of this length.
pub(super) fn around(length: usize) -> usize {
    let bits = usize::BITS - (length | 1).leading_zeros();
    1 + bits.div_ceil(7) as usize + length
}

#[inline]
fn key(out: &mut Vec<u8>, field: u8, kind: u8) {
    varint(out, u64::from(field) << 3 | u64::from(kind));
}

#[inline]
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= u64::from(MORE) {
        out.push(low(value) | MORE);
        value >>= 7;
    }
    out.push(low(value));
}

pub(super) const fn low(value: u64) -> u8 {
    let [low, ..] = value.to_le_bytes();
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    type Write = fn(&mut Vec<u8>);
    type Nested = fn(&mut Vec<u8>, u8, Write);

    fn bytes_of<const LENGTH: usize>(out: &mut Vec<u8>) {
        out.resize(out.len() + LENGTH, b'x');
    }

    #[test]
    fn a_length_has_the_bytes_it_needs_whatever_room_was_left() {
        let messages: [(usize, Write); 6] = [
            (0, bytes_of::<0>),
            (0x7f, bytes_of::<0x7f>),
            (0x80, bytes_of::<0x80>),
            (0x3fff, bytes_of::<0x3fff>),
            (0x4000, bytes_of::<0x4000>),
            (0x20_0000, bytes_of::<0x20_0000>),
        ];
        for write in [nested as Nested, nested_long] {
            for (length, message) in messages {
                let (mut written, mut expected) = (vec![7], vec![7]);
                write(&mut written, 2, message);
                begin(&mut expected, 2, length);
                message(&mut expected);
                assert!(written == expected, "{length}");
            }
        }
    }
}
