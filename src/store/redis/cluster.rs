//! Asks the nodes of a cluster who holds which slots.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::{RedisResult, Value};

use super::address::Template;
use super::connector::RedisConnector;
use super::error::RedisOpenError;
use super::map::{Map, RedisServer, most_common};

/// A range of slots and the address of its primary.
type Range = (u16, u16, (String, u16));

/// The slot map that most of the answering nodes report.
pub(super) async fn find(
    connector: &RedisConnector,
    seeds: &[(String, u16)],
    at: &Template,
    known: &[Arc<RedisServer>],
) -> Result<Map, RedisOpenError> {
    // The known nodes come before the seeds, which may be gone: only so many are asked.
    let mut asked: Vec<Arc<RedisServer>> = known.to_vec();
    for (host, port) in seeds {
        let seed = connector.server(&at.url(host, *port), 0)?;
        if !asked.iter().any(|server| server.is(&seed)) {
            asked.push(Arc::new(seed));
        }
    }
    let asked = asked.iter().take(ASKED_MAX);
    let (mut drawn, mut cause) = (Vec::new(), None);
    for answer in join_all(asked.map(|server| ask(connector, server))).await {
        match answer {
            // A node that holds no slots, such as one that has not joined yet, does not count as an answer.
            Ok(Some(ranges)) if !ranges.is_empty() => drawn.push(ranges),
            Ok(_) => {}
            Err(error) => cause = Some(error),
        }
    }
    let Some(ranges) = most_common(drawn) else {
        return Err(
            cause.map_or(RedisOpenError::NoSlots, |cause| RedisOpenError::Nodes {
                cause,
            }),
        );
    };
    let addresses: BTreeSet<_> = ranges.iter().map(|(_, _, address)| address).collect();
    let addresses: Vec<_> = addresses.into_iter().collect();
    let servers = addresses.iter().map(|(host, port)| {
        let server = connector.server(&at.url(host, *port), 0)?;
        // The same server keeps its entry, and with it the connection for these questions.
        let same = known.iter().find(|known| known.is(&server));
        Ok(same.map_or_else(|| Arc::new(server), Arc::clone))
    });
    let servers = servers.collect::<Result<Vec<_>, RedisOpenError>>()?;
    let place = |address| addresses.iter().position(|other| *other == address);
    let ranges = ranges
        .iter()
        .filter_map(|(first, last, address)| Some((*first, *last, place(address)?)));
    Ok(Map {
        ranges: ranges.collect(),
        servers,
    })
}

async fn ask(connector: &RedisConnector, server: &RedisServer) -> RedisResult<Option<Vec<Range>>> {
    // Taken out while it is in use: after an error it is not put back.
    let kept = server.kept().take();
    let mut connection = match kept {
        Some(kept) => kept,
        None => connector.connect(&server.client).await?,
    };
    let mut command = redis::cmd("CLUSTER");
    let slots: Vec<Value> = command.arg("SLOTS").query_async(&mut connection).await?;
    *server.kept() = Some(connection);
    let host = server.client.get_connection_info().addr();
    let own_host = match host {
        redis::ConnectionAddr::Tcp(host, _) | redis::ConnectionAddr::TcpTls { host, .. } => host,
        redis::ConnectionAddr::Unix(_) | _ => "",
    };
    let mut ranges = slots
        .into_iter()
        .map(|range| read(range, own_host))
        .collect::<Option<Vec<_>>>();
    if let Some(ranges) = &mut ranges {
        // Nodes may list the ranges in another order, and the lists are compared.
        ranges.sort();
    }
    Ok(ranges)
}

/// Reads one entry of CLUSTER SLOTS: first, last, the primary, its replicas. A node that does not know its own host
/// name leaves it out, so an empty host means the node that was asked.
fn read(range: Value, own_host: &str) -> Option<Range> {
    let Value::Array(range) = range else {
        return None;
    };
    let mut range = range.into_iter();
    let (first, last) = (number(&range.next()?)?, number(&range.next()?)?);
    let Value::Array(primary) = range.next()? else {
        return None;
    };
    let host = if let Value::BulkString(host) = primary.first()?
        && !host.is_empty()
    {
        String::from_utf8(host.clone()).ok()?
    } else {
        own_host.to_owned()
    };
    Some((first, last, (host, number(primary.get(1)?)?)))
}

fn number(value: &Value) -> Option<u16> {
    if let Value::Int(number) = value {
        u16::try_from(*number).ok()
    } else {
        None
    }
}

/// The most nodes that are asked at the same time: a majority of any cluster that raincheck needs.
const ASKED_MAX: usize = 16;
