-- Renews one lease and tells whose runs and whose has ended, by this server's clock alone, and 1 if it had not this lease.
-- KEYS: live. ARGV: 1 incarnation or '', 2 lease ms, 3 the most to report, 4 expiry of live in ms.
-- Few commands, because every replica runs this once a second for as long as it lives.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local added = 0
if ARGV[1] ~= '' then
  added = redis.pcall('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
  if type(added) == 'table' and added.err then
    -- A full Redis refuses the first write of a script, and nobody could renew a lease there: all
    -- would be taken for dead. After a write that it allows it takes any other.
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
    added = redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
  end
  if added == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
  -- Renewed long before it could end: about once in five minutes of one replica's heartbeats.
  if time[1] % 300 < 2 then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
end
local members = redis.call('ZRANGE', KEYS[1], 0, ARGV[3] - 1, 'WITHSCORES')
return {now, members, added}
