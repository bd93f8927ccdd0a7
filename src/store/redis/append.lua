-- One piece of an entry of a log, which never stands without an expiry.
-- KEYS: log. ARGV: 1 field of the piece, 2 piece, 3 expiry ms, 4 number of the entry that goes for it.
-- The growing write first: a full Redis, or a key of another type, refuses here or nowhere.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
redis.call('HDEL', KEYS[1], ARGV[4])
local piece = 1
while redis.call('HDEL', KEYS[1], ARGV[4] .. ':' .. piece) == 1 do piece = piece + 1 end
return 1
