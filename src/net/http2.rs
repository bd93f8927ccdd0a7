//! One request over HTTP/2, on a connection of its own.

use std::error::Error;
use std::future::pending;
use std::io;

use bytes::{Bytes, BytesMut};
use h2::client::Builder;
use hyper::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

/// A larger response head is refused.
const HEAD_BYTES_MAX: u32 = 16 * 1024;

type BoxError = Box<dyn Error + Send + Sync>;

/// Sends the request, and reads at most so many bytes of the answer. Its trailers are among its headers then. The caller bounds
/// the time.
pub(super) async fn ask<T>(
    stream: T,
    request: Request<Bytes>,
    bytes_max: usize,
) -> Result<Response<Bytes>, BoxError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (sender, connection) = Builder::new()
        .enable_push(false)
        .max_header_list_size(HEAD_BYTES_MAX)
        .handshake::<T, Bytes>(stream)
        .await?;
    let asking = async {
        let (head, body) = request.into_parts();
        let mut sender = sender.ready().await?;
        let (answering, mut sending) = sender.send_request(Request::from_parts(head, ()), false)?;
        // h2 keeps what the other side has no room for yet: the whole body is in memory anyway.
        sending.send_data(body, true)?;
        let (mut head, mut body) = answering.await?.into_parts();
        let mut read = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data?;
            if read.len() + data.len() > bytes_max {
                return Err(io::Error::other("the answer is too large").into());
            }
            body.flow_control().release_capacity(data.len())?;
            read.extend_from_slice(&data);
        }
        if let Some(trailers) = body.trailers().await? {
            head.headers.extend(trailers);
        }
        Ok(Response::from_parts(head, read.freeze()))
    };
    // If the connection breaks, the question fails.
    let driving = async {
        let _ = connection.await;
        pending().await
    };
    tokio::select! {
        answer = asking => answer,
        never = driving => never,
    }
}
