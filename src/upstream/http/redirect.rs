//! Follows redirects within the server, as HTTP clients do: Python frameworks answer `/mcp` with 307 to `/mcp/`.

use hyper::{Method, Request, Response, Uri};

use crate::mcp::error::Failure;
use crate::upstream::http::address::{Direction, Moved, UnfollowedRedirect};
use crate::upstream::http::origin::Origin;
use crate::upstream::http::{RequestBody, ResponseBody};

/// The number of redirects of one request that are followed.
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
            // Boxed, so that a request to a settled address has no room for it.
            return Box::pin(self.deliver_along(request)).await;
        }
        // Another request may have learned another address meanwhile.
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
                // The request was not kept, so only its sender can make it once more.
                response.extensions_mut().insert(Moved);
            }
            Direction::Elsewhere(place) => self.refuse(response, place),
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
            // The body is shared, so a copy costs its headers only.
            let mut copy = request.clone();
            let mut response = self.http.send(request).await?;
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
                    self.refuse(&mut response, target.path().to_owned());
                    return Ok(response);
                }
                Direction::Elsewhere(place) => {
                    self.refuse(&mut response, place);
                    return Ok(response);
                }
                Direction::Here => {
                    self.address.answered(method, copy.uri(), status);
                    return Ok(response);
                }
            }
            hops += 1;
            // The body is read to its end, so that the next hop can use the same connection.
            self.http.finish(response.into_body());
            request = copy;
        }
    }

    /// Notes a redirect that is not followed.
    fn refuse(&self, response: &mut Response<ResponseBody>, place: String) {
        self.address.refuse(response.status(), &place);
        response.extensions_mut().insert(UnfollowedRedirect(place));
    }
}
