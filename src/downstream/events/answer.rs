//! Answers a request about raincheck's event.

use std::sync::Arc;

use hyper::Response;

use super::look::EventLooker;
use super::request::{EventOp, EventRequest};
use super::state::Events;
use super::{list, poll, stream, subscribe};
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
    let (id, params) = (modern.request.id.get(), &modern.request.params);
    let looker = |filter| EventLooker {
        proxy: Arc::clone(proxy),
        events: Arc::clone(events),
        by: by.clone(),
        filter,
    };
    let streams = match op {
        EventOp::List => {
            let listed = list::ours_alone(list::delivery(proxy, by));
            return Rpc::result(id, &listed).into_response();
        }
        EventOp::Subscribe => {
            return subscribe::subscribe(id, looker, params)
                .await
                .into_response();
        }
        EventOp::Unsubscribe => {
            return subscribe::unsubscribe(id, looker, params)
                .await
                .into_response();
        }
        EventOp::Poll => false,
        EventOp::Stream => true,
    };
    let now_ms = proxy.runner.ledger().now_ms();
    let (filter, asked) = match EventRequest::read(params, now_ms) {
        Ok(read) => read,
        Err(error) => return Rpc::error(id, &error).into_response(),
    };
    let looker = looker(filter);
    if streams {
        stream::answer(id, looker, asked).await
    } else {
        poll::answer(id, &looker, asked).await.into_response()
    }
}
