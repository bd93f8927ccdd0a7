//! One request over HTTP/2. A request that provably was not processed is sent again over another connection, and a
//! request that may have been processed never is.

use std::sync::Arc;

use bytes::Bytes;
use h2::client::{Connection, ResponseFuture, SendRequest};
use h2::{Reason as Code, RecvStream};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue};
use hyper::{Request, Response, Uri, Version};
use tokio::time::Instant;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::telemetry::operations;
use crate::upstream::failures::{LATER, UNREACHABLE};
use crate::upstream::http::connect::ServerConnection;
use crate::upstream::http::http2::attending::attend;
use crate::upstream::http::http2::connections::{Connections, StreamPlace};
use crate::upstream::http::http2::first_byte::FirstByte;
use crate::upstream::http::request_body::RequestBody;
use crate::upstream::http::response_body::ResponseBody;
use crate::upstream::http::{Http, PAUSE, TRIES, TRYING};

/// Why there is no answer.
enum Unanswered {
    /// The server did not process the request, and its connection takes no further requests.
    Ended(Option<Box<Request<RequestBody>>>),
    /// The server did not process the request, because it has too much to do.
    Refused(Option<Box<Request<RequestBody>>>),
    Failed(Failure),
}

/// A request has a scheme or cannot be encoded. It was not sent.
const NOT_ENCODED: Failure = Failure::new(Reason::UpstreamInvalid, SideEffect::None);

impl Http {
    /// Sends one request. If the future is dropped, its stream is reset.
    pub(in crate::upstream::http) async fn send_http2(
        &self,
        connections: &Arc<Connections>,
        mut request: Box<Request<RequestBody>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let mut pause = PAUSE;
        let given_up = Instant::now() + TRYING;
        let mut failure = UNREACHABLE;
        for last in (0..TRIES).rev() {
            // Boxed, so that a call that waits for its answer has no room for it.
            if let Some((sender, place)) = Box::pin(self.take_place(connections)).await {
                let asked = self.ask(sender, place, request, given_up).await;
                let (back, at_once) = match asked {
                    Ok(response) => return Ok(response),
                    Err(Unanswered::Failed(failure)) => return Err(failure),
                    Err(Unanswered::Ended(back)) => (back, true),
                    Err(Unanswered::Refused(back)) => (back, false),
                };
                failure = LATER;
                request = back.ok_or(LATER)?;
                // The server is not busy: only that connection takes no more, so no pause is due.
                if at_once {
                    continue;
                }
            }
            let next = Instant::now() + pause;
            if last == 0 || next >= given_up {
                break;
            }
            tokio::time::sleep_until(next).await;
            pause *= 4;
        }
        Err(failure)
    }

    /// A place on a connection, which may be a new one. `None`: no server can be reached.
    async fn take_place(
        &self,
        connections: &Arc<Connections>,
    ) -> Option<(SendRequest<Bytes>, StreamPlace)> {
        loop {
            if let Some(taken) = connections.take() {
                return Some(taken);
            }
            let failures = connections.failures();
            match connections.connecting.take().await {
                Some(_flight) => {
                    let connected = self.connect_http2().await;
                    if connected.is_none() {
                        connections.note_failure();
                    }
                    let (sender, connection) = connected?;
                    // Listed before the flight ends, so that the requests behind it find places here.
                    let (sender, place) = connections.add(sender);
                    self.drive(attend(connection, Arc::downgrade(connections), place.id));
                    return Some((sender, place));
                }
                // The attempt that this request waited for has failed.
                None if connections.failures() != failures => return None,
                None => {}
            }
        }
    }

    async fn connect_http2(
        &self,
    ) -> Option<(
        SendRequest<Bytes>,
        Connection<FirstByte<Box<dyn ServerConnection>>, Bytes>,
    )> {
        let connecting = self.connector.connecting();
        self.obstacles.note_connection(Some(connecting));
        let connected = self.connector.connect_http2().await;
        let error = connected.as_ref().err();
        let obstacle = error.map(|error| self.connector.obstacle(error));
        self.obstacles.note_connection(obstacle);
        connected.ok()
    }

    async fn ask(
        &self,
        mut sender: SendRequest<Bytes>,
        place: StreamPlace,
        request: Box<Request<RequestBody>>,
        given_up: Instant,
    ) -> Result<Response<ResponseBody>, Unanswered> {
        let (method, sent) = (request.method().clone(), Instant::now());
        let mut response = match begin(&mut sender, &request, self.connector.scheme()) {
            Ok(response) => response,
            Err(error) if error.is_go_away() || error.is_io() => {
                return Err(Unanswered::Ended(Some(request)));
            }
            Err(_) => return Err(Unanswered::Failed(NOT_ENCODED)),
        };
        drop(sender);
        // The request is kept for as long as it might be sent again. An open call does not keep it.
        let answered = match tokio::time::timeout_at(given_up, &mut response).await {
            Ok(answered) => answered.map_err(|error| unanswered(&error, Some(request))),
            Err(_elapsed) => {
                drop(request);
                response.await.map_err(|error| unanswered(&error, None))
            }
        };
        let response = answered?;
        operations::responded(&method, sent);
        if !response.status().is_success() {
            self.obstacles
                .note_status(&method, response.status(), response.headers());
        }
        Ok(with_body(response, place))
    }
}

/// Puts the request on the connection. If this fails, nothing of the request was sent.
fn begin(
    sender: &mut SendRequest<Bytes>,
    request: &Request<RequestBody>,
    scheme: &str,
) -> Result<ResponseFuture, h2::Error> {
    let mut head = Request::new(());
    *head.version_mut() = Version::HTTP_2;
    head.method_mut().clone_from(request.method());
    head.headers_mut().clone_from(request.headers());
    if let Some(uri) = absolute(request, scheme) {
        *head.uri_mut() = uri;
    }
    let headers = head.headers_mut();
    // The authority of the URI says it.
    headers.remove(HOST);
    let is_empty = request.body().is_empty();
    if !is_empty {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(request.body().len()));
    }
    let (response, mut stream) = sender.send_request(head, is_empty)?;
    if !is_empty {
        // The bytes wait in the connection until the server takes them. If the connection has ended, the response says
        // so.
        let _ = stream.send_data(request.body().clone().take(), true);
    }
    Ok(response)
}

/// The target of a request with scheme and authority, which HTTP/2 has in place of `Host`.
fn absolute(request: &Request<RequestBody>, scheme: &str) -> Option<Uri> {
    let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
    Uri::builder()
        .scheme(scheme)
        .authority(request.headers().get(HOST)?.as_bytes())
        .path_and_query(path)
        .build()
        .ok()
}

/// Returns the meaning of the end of a stream before its answer (RFC 9113, 8.7).
fn unanswered(error: &h2::Error, request: Option<Box<Request<RequestBody>>>) -> Unanswered {
    let is_refused = error.is_reset() && error.reason() == Some(Code::REFUSED_STREAM);
    match () {
        // h2 gives this error only to streams above the last that the server says it processes.
        () if error.is_go_away() && error.is_remote() => Unanswered::Ended(request),
        () if is_refused && error.is_remote() => Unanswered::Refused(request),
        () => Unanswered::Failed(broken(error)),
    }
}

fn broken(error: &h2::Error) -> Failure {
    // What the library found wrong, the server said wrongly.
    let reason = if error.is_library() {
        Reason::UpstreamInvalid
    } else {
        Reason::UpstreamReset
    };
    Failure::new(reason, SideEffect::Unknown)
}

fn with_body(response: Response<RecvStream>, place: StreamPlace) -> Response<ResponseBody> {
    let (mut head, stream) = response.into_parts();
    // A client may have asked over HTTP/1.1.
    head.version = Version::HTTP_11;
    let body = ResponseBody::over_http2(stream, &head.headers, place);
    Response::from_parts(head, body)
}
