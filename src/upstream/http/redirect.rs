//! Follows redirects within the server, as HTTP clients do: FastAPI and Starlette answer `/mcp` with 307 to `/mcp/`.

use hyper::{Request, Response};

use crate::mcp::error::Failure;
use crate::upstream::http::address::Direction;
use crate::upstream::http::origin::Origin;
use crate::upstream::http::refusal;
use crate::upstream::http::{RequestBody, ResponseBody};

/// How many redirects of one request are followed.
const HOPS_MAX: usize = 5;

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
        let response = self.http.send(request).await?;
        if response.status().is_redirection() {
            self.address.unsettle();
        }
        Ok(response)
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
                    self.address.refuse(status, target.path().to_owned());
                    return Ok(response);
                }
                Direction::Elsewhere(location) => {
                    self.address.refuse(status, location);
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
        (status.is_redirection() && status != hyper::StatusCode::NOT_MODIFIED)
            .then(|| refusal::failure_of(status))
    }
}
