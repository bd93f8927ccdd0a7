//! The wire format of protobuf, as far as spans need it.

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;
const FIXED32: u8 = 5;

/// A string, or bytes.
pub(super) fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    begin(out, field, value.len());
    out.extend_from_slice(value);
}

pub(super) fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    key(out, field, VARINT);
    varint(out, value);
}

pub(super) fn fixed64(out: &mut Vec<u8>, field: u8, value: u64) {
    key(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn fixed32(out: &mut Vec<u8>, field: u8, value: u32) {
    key(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A message within a message.
pub(super) fn nested(out: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    key(out, field, LENGTH);
    let at = out.len();
    // Room for nearly all lengths.
    out.push(0);
    write(out);
    let mut length = (out.len() - at - 1) as u64;
    let mut last = at;
    while length >= 0x80 {
        out.insert(last, low(length) | 0x80);
        length >>= 7;
        last += 1;
    }
    if let Some(place) = out.get_mut(last) {
        *place = low(length);
    }
}

/// The beginning of a message of so many bytes within a message.
pub(super) fn begin(out: &mut Vec<u8>, field: u8, length: usize) {
    key(out, field, LENGTH);
    varint(out, length as u64);
}

/// The length of a message with one field, of this length.
pub(super) fn around(length: usize) -> usize {
    let bits = usize::BITS - (length | 1).leading_zeros();
    1 + bits.div_ceil(7) as usize + length
}

fn key(out: &mut Vec<u8>, field: u8, kind: u8) {
    varint(out, u64::from(field) << 3 | u64::from(kind));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low(value) | 0x80);
        value >>= 7;
    }
    out.push(low(value));
}

fn low(value: u64) -> u8 {
    let [low, ..] = value.to_le_bytes();
    low
}
