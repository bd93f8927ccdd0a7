//! Content codings without compression, which every decoder reads.

/// Stored blocks of deflate, without compression: every decoder reads them.
pub(super) fn stored(body: Vec<u8>) -> Vec<u8> {
    [block(&body, 1), body].concat()
}

/// The head of a stored block. `last`: 1 for the last one.
pub(super) fn block(body: &[u8], last: u8) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap();
    [&[last][..], &length.to_le_bytes(), &(!length).to_le_bytes()].concat()
}

const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

pub(super) fn gzip(body: Vec<u8>) -> Vec<u8> {
    let crc = body.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    });
    let length = u32::try_from(body.len()).unwrap();
    let end = [(!crc).to_le_bytes(), length.to_le_bytes()].concat();
    [&GZIP_HEAD[..], &stored(body), &end].concat()
}

/// What a stream has sent that is flushed and goes on.
pub(super) fn gzip_begun(body: Vec<u8>) -> Vec<u8> {
    [&GZIP_HEAD[..], &block(&body, 0), &body].concat()
}

pub(super) fn zlib(body: Vec<u8>) -> Vec<u8> {
    let (a, b) = body.iter().fold((1_u32, 0_u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65521;
        (a, (b + a) % 65521)
    });
    [
        &[0x78, 0x01][..],
        &stored(body),
        &(b << 16 | a).to_be_bytes(),
    ]
    .concat()
}

/// One block without compression, and an empty last one.
pub(super) fn brotli(body: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(body.len() - 1).unwrap();
    let head = (length << 4 | 1 << 20).to_le_bytes();
    [&head[..3], &body, &[3]].concat()
}
