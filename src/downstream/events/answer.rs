//! Answers a request about raincheck's event.

use std::sync::Arc;

use hyper::Response;

use super::look::EventLooker;
use super::request::{EventOp, EventRequest, no_subscription, no_webhooks};
use super::state::Events;
use super::{list, poll, stream};
use crate::downstream::body::Body;
use crate::downstream::inbound::request::Modern;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;

pub(in crate::downstream) async fn answer(
    (proxy, events): (&Arc<Proxy>, &Arc<Events>),
    op: EventOp,
    modern: &Modern<'_>,
    by: &Requester,
) -> Response<Body> {
    let id = modern.request.id.get();
    let streams = match op {
        EventOp::List => return Rpc::result(id, &list::ours_alone()).into_response(),
        EventOp::Subscribe => return Rpc::error(id, &no_webhooks()).into_response(),
        EventOp::Unsubscribe => return Rpc::error(id, &no_subscription()).into_response(),
        EventOp::Poll => false,
        EventOp::Stream => true,
    };
    let now_ms = proxy.runner.ledger().now_ms();
    let (filter, asked) = match EventRequest::read(&modern.request.params, now_ms) {
        Ok(read) => read,
        Err(error) => return Rpc::error(id, &error).into_response(),
    };
    let looker = EventLooker {
        proxy: Arc::clone(proxy),
        events: Arc::clone(events),
        by: by.clone(),
        filter,
    };
    if streams {
        stream::answer(id, looker, asked).await
    } else {
        poll::answer(id, &looker, asked).await.into_response()
    }
}
