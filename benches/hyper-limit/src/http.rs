//! Which part of the proxy answers a request.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};

use crate::answer::{Body, full, refusal};
use crate::forward::Upstream;
use crate::message::Message;
use crate::options::Options;
use crate::tasks::Tasks;

#[derive(Debug)]
pub(crate) struct Proxy {
    upstream: Arc<Upstream>,
    inspects: bool,
    tasks: Option<Tasks>,
}

impl Proxy {
    pub(crate) async fn open(options: &Options) -> Result<Self, String> {
        let upstream = Arc::new(Upstream::new(&options.upstream, options.uses_http2));
        let tasks = match &options.redis {
            Some(url) => Some(Tasks::open(url, Arc::clone(&upstream)).await?),
            None => None,
        };
        Ok(Self {
            upstream,
            inspects: options.inspects,
            tasks,
        })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if !self.inspects || parts.method != Method::POST {
            let body = body.map_err(Into::into).boxed();
            return self.upstream.forward(parts, body).await;
        }
        match body.collect().await {
            Ok(body) => self.inspected(parts, body.to_bytes()).await,
            Err(_) => refusal(StatusCode::BAD_REQUEST, "null", -32700, "body"),
        }
    }

    async fn inspected(&self, parts: Parts, body: Bytes) -> Response<Body> {
        let Ok(message) = serde_json::from_slice::<Message<'_>>(&body) else {
            return refusal(StatusCode::BAD_REQUEST, "null", -32700, "parse");
        };
        let (Some(tasks), Some(id)) = (&self.tasks, message.id) else {
            return self.upstream.forward(parts, full(body.clone())).await;
        };
        let named = message.params.as_ref();
        let task = named.and_then(|params| params.task_id);
        match (message.method, task) {
            ("tools/call", _) if message.declares_tasks() => {
                let tool = named.and_then(|params| params.name).unwrap_or_default();
                tasks.create(parts, body.clone(), id.get(), tool).await
            }
            ("tasks/get", Some(task)) => tasks.get(id.get(), task).await,
            ("tasks/cancel", Some(task)) => tasks.cancel(id.get(), task).await,
            ("tasks/get" | "tasks/cancel", None) => {
                refusal(StatusCode::BAD_REQUEST, id.get(), -32602, "taskId")
            }
            _ => self.upstream.forward(parts, full(body.clone())).await,
        }
    }
}

pub(crate) async fn handle(
    proxy: Arc<Proxy>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    Ok(proxy.answer(request).await)
}
