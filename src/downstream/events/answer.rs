//! Answers a request about raincheck's event.

use std::sync::Arc;

use hyper::Response;

use super::asked::{Asked, EventOp, no_subscription, no_webhooks};
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
    let asked = || Asked::read(&modern.request.params, proxy.runner.ledger().now_ms());
    let answered = match op {
        EventOp::List => Ok(Rpc::result(id, &list::ours_alone())),
        EventOp::Poll => match asked() {
            Ok(asked) => Ok(poll::answer((proxy, events), id, by, asked).await),
            Err(error) => Err(error),
        },
        EventOp::Stream => match asked() {
            Ok(asked) => return stream::answer((proxy, events), id, by, asked).await,
            Err(error) => Err(error),
        },
        EventOp::Subscribe => Err(no_webhooks()),
        EventOp::Unsubscribe => Err(no_subscription()),
    };
    answered
        .unwrap_or_else(|error| Rpc::error(id, &error))
        .into_response()
}
