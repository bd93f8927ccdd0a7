-- Renews one lease and tells whose has ended, by this server's clock alone.
-- KEYS: live. ARGV: 1 incarnation or '', 2 lease ms, 3 the most to report, 4 expiry of live in ms.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- First a write that a full Redis allows, or nobody could renew a lease there and all would be
-- taken for dead.
local known = redis.call('PEXPIRE', KEYS[1], ARGV[4])
if ARGV[1] ~= '' then
  redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
  if known == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
end
return {now, redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[3])}
