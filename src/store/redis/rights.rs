//! Whether the user of Redis may run every command that tasks need. Without this look, a missing right shows when the first
//! task needs it, long after the start.

use redis::aio::MultiplexedConnection;

use super::error::RedisOpenError;

/// The commands beside those of one topology, each as it could be called: Redis does not look at a command whose number of
/// arguments is wrong. `KEY` is a key of the namespace.
const COMMANDS: &[&str] = &[
    "evalsha hash 0",
    "get KEY",
    "set KEY value",
    "unlink KEY",
    "hget KEY field",
    "hset KEY field value",
    "hsetnx KEY field value",
    "hmget KEY field",
    "hkeys KEY",
    "hdel KEY field",
    "pttl KEY",
    "pexpire KEY 1",
    "pexpireat KEY 1",
    "sadd KEY member",
    "srem KEY member",
    "scard KEY",
    "sscan KEY 0",
    "zadd KEY 1 member",
    "zrem KEY member",
    "zcard KEY",
    "zrange KEY 0 1",
    "zrangebyscore KEY 0 1",
    "xadd KEY * field value",
    "xlen KEY",
    "xread streams KEY 0",
    "xrange KEY - +",
    "xrevrange KEY + -",
];

/// Answers with the commands that the user may not run. Redis has the question since 7.0.
const SCRIPT: &str = "
    local denied = {}
    for _, command in ipairs(ARGV) do
      local words = {}
      for word in string.gmatch(command, '%S+') do
        words[#words + 1] = word
      end
      local asked, may = pcall(redis.acl_check_cmd, unpack(words))
      if asked and may == false then denied[#denied + 1] = words[1] end
    end
    return denied";

/// Refuses a server whose user lacks some of the commands. A user who lacks all of them has no right to the keys, and
/// the first write says that.
pub(super) async fn try_commands(
    connection: &mut MultiplexedConnection,
    server: &str,
    key: &str,
) -> Result<(), RedisOpenError> {
    let mut command = redis::cmd("EVAL");
    command.arg(SCRIPT).arg(0);
    for line in COMMANDS {
        command.arg(line.replace("KEY", key));
    }
    let server = server.to_owned();
    let denied: Vec<String> = match command.query_async(connection).await {
        Ok(denied) => denied,
        Err(cause) => return Err(RedisOpenError::Scripts { server, cause }),
    };
    let all = COMMANDS.iter().filter(|line| line.contains("KEY")).count();
    if denied.is_empty() || denied.len() >= all {
        return Ok(());
    }
    let missing = denied.iter().map(|name| format!("+{name}"));
    Err(RedisOpenError::Denied {
        server,
        missing: missing.collect::<Vec<_>>().join(" "),
    })
}
