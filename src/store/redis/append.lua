-- One piece of an entry of a log, which never stands without an expiry.
-- KEYS: log. ARGV: 1 field of the piece, 2 piece, 3 expiry ms, 4 number of the entry that goes for it,
--       5 with the head, how many pieces the entry has, else ''.
-- The growing write first: a full Redis, or a key of another type, refuses here or nowhere.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
local function forget(number, piece)
  while redis.call('HDEL', KEYS[1], number .. ':' .. piece) == 1 do piece = piece + 1 end
end
redis.call('HDEL', KEYS[1], ARGV[4])
forget(ARGV[4], 1)
-- What a writer that died left of a longer entry.
if ARGV[5] ~= '' then forget(ARGV[1], tonumber(ARGV[5])) end
return 1
