//! Content codings of response bodies (RFC 9110, 8.4). raincheck asks for none where it reads the body, and undoes those that
//! come all the same: gzip, deflate and br. The bytes are decoded as they are read, so that the limits of who reads them hold
//! for the decoded size.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder};
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use http_body_util::BodyDataStream;
use hyper::HeaderMap;
use hyper::body::Body;
use hyper::header::CONTENT_ENCODING;
use tokio::io::{AsyncBufRead, AsyncRead, BufReader, ReadBuf};
use tokio_util::io::{StreamReader, poll_read_buf};

use crate::mcp::error::Failure;
use crate::mcp::flaw::{Flaw, HeaderWord};
use crate::upstream::failures::INVALID;
use crate::upstream::http::request_body::BoxError;

/// The number of bytes that are decoded at once.
const CHUNK: usize = 16 * 1024;

/// Codings over each other. No server has more.
const CODINGS_MAX: usize = 3;

/// A coding that can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Deflate,
    Brotli,
}

/// The codings in the order in which they were applied. "identity" is none, in any spelling: all servers on .NET send it.
pub(super) fn codings(headers: &HeaderMap) -> Result<Vec<Coding>, Failure> {
    let mut codings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        for word in value.as_bytes().split(|byte| *byte == b',') {
            let word = word.trim_ascii();
            let coding = match &*word.to_ascii_lowercase() {
                b"" | b"identity" => continue,
                b"gzip" | b"x-gzip" => Coding::Gzip,
                b"deflate" => Coding::Deflate,
                b"br" => Coding::Brotli,
                _ => return Err(INVALID.because(Flaw::Coding(HeaderWord::of(word)))),
            };
            codings.push(coding);
        }
    }
    match codings.get(CODINGS_MAX) {
        Some(_) => Err(INVALID.because(Flaw::Coding(HeaderWord::of(b"of-many")))),
        None => Ok(codings),
    }
}

type Reader = Pin<Box<dyn AsyncBufRead + Send + Sync>>;

/// The decoded bytes of a body.
pub(super) struct Decoding {
    reader: Reader,
    has_ended: bool,
}

impl fmt::Debug for Decoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decoding")
    }
}

impl Decoding {
    pub(super) fn of<B>(body: B, codings: &[Coding]) -> Self
    where
        B: Body<Data = Bytes, Error = BoxError> + Send + Sync + 'static,
    {
        let bytes = BodyDataStream::new(body).map_err(io::Error::other);
        let coded: Reader = Box::pin(StreamReader::new(bytes));
        Self {
            // The coding that was applied last is undone first (RFC 9110, 8.4).
            reader: codings.iter().rev().copied().fold(coded, decoder),
            has_ended: false,
        }
    }

    /// The next bytes. An error where the body is cut, or not what its header says.
    pub(super) fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let read = ready!(poll_read_buf(self.reader.as_mut(), context, &mut chunk));
        // An error ends the body, too, because the bytes behind it cannot be decoded.
        self.has_ended = !matches!(read, Ok(1..));
        Poll::Ready(match read {
            Ok(0) => None,
            Ok(_) => Some(Ok(chunk.freeze())),
            Err(error) => Some(Err(error)),
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

fn decoder(coded: Reader, coding: Coding) -> Reader {
    match coding {
        Coding::Gzip => {
            let mut gzip = GzipDecoder::new(coded);
            // Reads to the end, so that the connection can be used again.
            gzip.multiple_members(true);
            Box::pin(BufReader::new(gzip))
        }
        Coding::Brotli => Box::pin(BufReader::new(BrotliDecoder::new(coded))),
        Coding::Deflate => Box::pin(BufReader::new(Deflate::Unknown(Some(coded)))),
    }
}

/// Decodes "deflate", which is the zlib format (RFC 9110, 8.4.1.2). Some servers send what that format wraps.
enum Deflate {
    /// Until the first byte. `None` only while it is replaced.
    Unknown(Option<Reader>),
    Zlib(Pin<Box<ZlibDecoder<Reader>>>),
    Raw(Pin<Box<DeflateDecoder<Reader>>>),
}

impl AsyncRead for Deflate {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let coded = match &mut *self {
                Self::Zlib(zlib) => return zlib.as_mut().poll_read(context, into),
                Self::Raw(raw) => return raw.as_mut().poll_read(context, into),
                Self::Unknown(coded) => coded,
            };
            let Some(reader) = coded else {
                return Poll::Ready(Ok(()));
            };
            // Method 8, which begins no block of a raw stream that anything writes.
            let first = ready!(reader.as_mut().poll_fill_buf(context))?.first();
            let is_zlib = first.is_some_and(|byte| byte & 0x0f == 8);
            if let Some(reader) = coded.take() {
                *self = if is_zlib {
                    Self::Zlib(Box::pin(ZlibDecoder::new(reader)))
                } else {
                    Self::Raw(Box::pin(DeflateDecoder::new(reader)))
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn identity_is_no_coding_and_others_are_named() {
        for (values, expected) in [
            (&[""][..], Ok(vec![])),
            (&["identity"], Ok(vec![])),
            (&["IDENTITY , identity", ""], Ok(vec![])),
            (&["GZip"], Ok(vec![Coding::Gzip])),
            (&["x-gzip, identity"], Ok(vec![Coding::Gzip])),
            (
                &["deflate", "br"],
                Ok(vec![Coding::Deflate, Coding::Brotli]),
            ),
            (&["zstd"], Err("zstd")),
            (&["gzip, aes128gcm"], Err("aes128gcm")),
            (&["br, br, br, br"], Err("of-many")),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            let expected = expected
                .map_err(|name| INVALID.because(Flaw::Coding(HeaderWord::of(name.as_bytes()))));
            assert_eq!(codings(&headers), expected, "{values:?}");
        }
    }
}
