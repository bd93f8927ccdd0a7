//! Asks the Sentinels for the primary, and asks the primary whether it is one.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::{ErrorKind, RedisResult, ServerErrorKind, Value};

use super::address::Template;
use super::connector::RedisConnector;
use super::error::RedisOpenError;
use super::map::{Map, RedisServer, most_common};

/// The primary that most of the answering Sentinels name, if that server reports the role of a primary: during a
/// failover Sentinels name a server that is not ready yet. The `known` server is not asked again.
pub(super) async fn find(
    connector: &RedisConnector,
    sentinels: &[String],
    primary: &str,
    at: &Template,
    known: Option<&Arc<RedisServer>>,
) -> Result<Map, RedisOpenError> {
    let asked = join_all(sentinels.iter().map(|url| ask(connector, url, primary))).await;
    let (mut named, mut cause) = (Vec::new(), None);
    for answer in asked {
        // Only a URL that cannot be used ends the search. A Sentinel that is away leaves it to the others.
        match answer? {
            Ok(Some(address)) => named.push(address),
            Ok(None) => {}
            Err(error) => cause = Some(error),
        }
    }
    let Some((host, port)) = most_common(named) else {
        let primary = primary.to_owned();
        return Err(match cause {
            Some(cause) => RedisOpenError::Sentinels { primary, cause },
            None => RedisOpenError::NoSuchPrimary { primary },
        });
    };
    let server = connector.server(&at.url(&host, port), 0)?;
    // The server of the present map was asked for its role when it was found.
    if known.is_some_and(|known| known.is(&server)) {
        return Ok(Map::of_one(server));
    }
    let name = || server.name.clone();
    let unreachable = |cause| RedisOpenError::Unreachable {
        server: name(),
        cause,
    };
    let mut connection = connector
        .connect(&server.client)
        .await
        .map_err(unreachable)?;
    let role: RedisResult<Vec<Value>> = redis::cmd("ROLE").query_async(&mut connection).await;
    match role {
        Ok(role) if role.first() == Some(&Value::BulkString(b"master".to_vec())) => {}
        Ok(_) => return Err(RedisOpenError::Replica { server: name() }),
        // ROLE is denied. The first write will show it.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {}
        Err(cause) => return Err(unreachable(cause)),
    }
    Ok(Map::of_one(server))
}

async fn ask(
    connector: &RedisConnector,
    url: &str,
    primary: &str,
) -> Result<RedisResult<Option<(String, u16)>>, RedisOpenError> {
    let server = connector.server(url, 0)?;
    Ok(async {
        let mut connection = connector.connect(&server.client).await?;
        redis::cmd("SENTINEL")
            .arg("get-master-addr-by-name")
            .arg(primary)
            .query_async(&mut connection)
            .await
    }
    .await)
}
