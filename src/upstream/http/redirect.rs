//! Follows redirects within the server, as HTTP clients do: Python frameworks answer `/mcp` with 307 to `/mcp/`.

use hyper::{Method, Request, Response, StatusCode, Uri};

use crate::mcp::error::{Failure, SideEffect};
use crate::upstream::http::address::Direction;
use crate::upstream::http::origin::Origin;
use crate::upstream::http::refusal;
use crate::upstream::http::{RequestBody, ResponseBody};

/// How many redirects of one request are followed.
const HOPS_MAX: usize = 5;

/// In the extensions of a response: a redirect whose target is known now.
#[derive(Debug, Clone, Copy)]
struct Moved;

/// Whether the request ran nothing, and would go to the right address if it were made once more.
pub(in crate::upstream) fn has_moved(response: &Response<ResponseBody>) -> bool {
    response.extensions().get::<Moved>().is_some()
}

impl Origin {
    /// Sends a request, and sends it again where the server redirects it to another path of its own. A redirect that is
    /// not followed comes back as it is.
    pub(super) async fn deliver(
        &self,
        request: Box<Request<RequestBody>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        if self
            .address
            .may_be_redirected(request.method(), request.uri())
        {
            return Box::pin(self.deliver_along(request)).await;
        }
        let asked = request.uri().clone();
        let mut response = self.http.send(request).await?;
        if response.status().is_redirection() {
            self.on_surprise(&asked, &mut response);
        }
        Ok(response)
    }

    /// Learns from a redirect of a POST that was not kept. It ran nothing, and can be made once more.
    fn on_surprise(&self, asked: &Uri, response: &mut Response<ResponseBody>) {
        self.address.unsettle();
        let status = response.status();
        match self.address.direction(asked, status, response.headers()) {
            Direction::To(target) => {
                self.address.learn(&Method::POST, asked, &target);
                response.extensions_mut().insert(Moved);
            }
            Direction::Elsewhere(location) => self.address.refuse(status, &location),
            Direction::Here => {}
        }
    }

    /// Keeps a copy of the request until its response says that it has arrived.
    async fn deliver_along(
        &self,
        mut request: Box<Request<RequestBody>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let mut hops = 0;
        loop {
            let mut copy = request.clone();
            let response = self.http.send(request).await?;
            let (status, method) = (response.status(), copy.method());
            match self
                .address
                .direction(copy.uri(), status, response.headers())
            {
                Direction::To(target) if hops < HOPS_MAX => {
                    self.address.learn(method, copy.uri(), &target);
                    *copy.uri_mut() = target;
                }
                Direction::To(target) => {
                    self.address.refuse(status, target.path());
                    return Ok(response);
                }
                Direction::Elsewhere(location) => {
                    self.address.refuse(status, &location);
                    return Ok(response);
                }
                Direction::Here => {
                    self.address.answered(method, copy.uri(), status);
                    return Ok(response);
                }
            }
            hops += 1;
            self.http.finish(response.into_body());
            request = copy;
        }
    }

    /// The failure that a redirect of a client's message means: its target is an address that no client can reach, or
    /// must not be told.
    pub(super) fn not_followed(response: &Response<ResponseBody>) -> Option<Failure> {
        let status = response.status();
        if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
            return None;
        }
        let failure = refusal::failure_of(status);
        Some(if has_moved(response) {
            Failure::new(failure.reason, SideEffect::None)
        } else {
            failure
        })
    }
}
