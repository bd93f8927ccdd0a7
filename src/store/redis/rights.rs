//! The check whether the user of Redis may run every command that tasks need. Without this look, a missing right
//! shows when the first task needs it, long after the start.

use redis::aio::MultiplexedConnection;

use super::error::{RedisOpenError, denied, unknown};

/// The commands within scripts and beside them, each in a form that changes nothing: Redis looks at the rights of the user
/// first, and at the arguments and the key later. `KEY` is a key of the namespace that never exists.
const COMMANDS: &[&str] = &[
    "time",
    "get KEY",
    "set KEY value wrong",
    "unlink KEY",
    "hget KEY field",
    "hset KEY field value odd",
    "hmget KEY field",
    "hkeys KEY",
    "hdel KEY field",
    "pttl KEY",
    "pexpire KEY 1",
    "pexpireat KEY 1",
    "srem KEY member",
    "scard KEY",
    "sscan KEY 0",
    "zadd KEY wrong member",
    "zrem KEY member",
    "zcard KEY",
    "zrange KEY 0 1",
    "zrangebyscore KEY 0 1",
    "xadd KEY wrong field value",
    "xlen KEY",
    "xread streams KEY 0",
    "xrange KEY - +",
    "xrevrange KEY + -",
];

/// These have no such form: each makes the key, and the second command takes it away again.
const UNDONE: &[(&str, &str)] = &[
    ("hsetnx KEY field value", "hdel KEY field"),
    ("sadd KEY member", "srem KEY member"),
];

/// Answers with the commands that the user may not run. The first argument is the key, and the second the number of the other
/// arguments that stand alone. Each text that Redis has had for a missing right names what may not be run; the text for a missing
/// key has other words.
///
/// `ACL DRYRUN` and `redis.acl_check_cmd` would answer too, but need a right of their own, or Redis 7.
const SCRIPT: &str = "
    local denied = {}
    local function may(command)
      local words = {}
      for word in string.gmatch(command, '%S+') do
        words[#words + 1] = word == 'KEY' and ARGV[1] or word
      end
      local answer = redis.pcall(unpack(words))
      local why = type(answer) == 'table' and answer.err
      if why and (string.find(why, 'run th', 1, true) or string.find(why, 'nknown Redis command', 1, true)) then
        denied[#denied + 1] = words[1]
        return false
      end
      return true
    end
    local alone = tonumber(ARGV[2])
    for at = 3, alone + 2 do may(ARGV[at]) end
    -- What cannot be undone is not tried: the user lacks a command already.
    local before = #denied
    for at = alone + 3, #ARGV, 2 do
      if before == 0 and may(ARGV[at]) then may(ARGV[at + 1]) end
    end
    return denied";

/// Refuses a server whose user lacks some of the commands. `key` does not exist. `named`: the key, where scripts name their
/// keys: proxies find the server by it, and some servers let a script use no other key.
pub(super) async fn try_commands(
    connection: &mut MultiplexedConnection,
    server: &str,
    key: &str,
    named: Option<&str>,
) -> Result<(), RedisOpenError> {
    let server = server.to_owned();
    // No script has this digest: a user that may run EVALSHA gets NOSCRIPT.
    let mut by_digest = redis::cmd("EVALSHA");
    by_digest
        .arg("0")
        .arg(usize::from(named.is_some()))
        .arg(named);
    let by_digest = by_digest.exec_async(connection).await;
    if let Err(cause) = by_digest.as_ref()
        && (denied(cause) || unknown(cause))
    {
        let cause = cause.clone();
        return Err(RedisOpenError::Scripts { server, cause });
    }
    let mut command = redis::cmd("EVAL");
    command
        .arg(SCRIPT)
        .arg(usize::from(named.is_some()))
        .arg(named);
    command.arg(key).arg(COMMANDS.len());
    let pairs = UNDONE.iter().flat_map(|(made, undone)| [*made, *undone]);
    for line in COMMANDS.iter().copied().chain(pairs) {
        command.arg(line);
    }
    let missing: Vec<String> = match command.query_async(connection).await {
        Ok(missing) => missing,
        Err(cause) => return Err(RedisOpenError::Scripts { server, cause }),
    };
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.iter().map(|name| format!("+{name}"));
    Err(RedisOpenError::Denied {
        server,
        missing: missing.collect::<Vec<_>>().join(" "),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SCRIPTS: [&str; 6] = [
        include_str!("append.lua"),
        include_str!("beat.lua"),
        include_str!("claim.lua"),
        include_str!("commit.lua"),
        include_str!("replace.lua"),
        include_str!("tell.lua"),
    ];

    /// The commands that a script calls.
    fn called(script: &str) -> impl Iterator<Item = String> {
        let calls = script.split("call(").skip(1);
        let names = calls.filter_map(|call| call.split(['\'', '"']).nth(1));
        names.map(str::to_ascii_lowercase)
    }

    #[test]
    fn every_command_of_the_scripts_is_tried() {
        let name = |line: &str| line.split(' ').next().unwrap().to_owned();
        let lines = COMMANDS
            .iter()
            .copied()
            .chain(UNDONE.iter().map(|(made, _)| *made));
        let tried: BTreeSet<String> = lines.map(name).collect();
        let called: BTreeSet<String> = SCRIPTS.into_iter().flat_map(called).collect();
        assert!(called.len() > 15, "{called:?}");
        let untried: Vec<_> = called.difference(&tried).collect();
        assert!(untried.is_empty(), "{untried:?}");
    }
}
