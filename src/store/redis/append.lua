-- One piece of an entry of a log, or the fence of the log, which never stands without an expiry. Returns 0 if a later
-- fence stands.
-- KEYS: log, the mark that another replica reads the log, change log. ARGV: 1 field of the piece, 2 piece,
--       3 expiry ms, 4 number of the entry that goes for it, 5 with the head, how many pieces the entry has,
--       else '', 6 the id under which the change log tells of the log, 7 length of the change log, 8 ms for
--       which the change log stays at least, 9 field of the fence, 10 fence of the writer.
local fence = redis.call('HGET', KEYS[1], ARGV[9])
if fence and tonumber(fence) > tonumber(ARGV[10]) then return 0 end
-- The growing write first: a full Redis, or a key of another type, refuses here or nowhere.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
local function forget(number, piece)
  while redis.call('HDEL', KEYS[1], number .. ':' .. piece) == 1 do piece = piece + 1 end
end
redis.call('HDEL', KEYS[1], ARGV[4])
forget(ARGV[4], 1)
if ARGV[5] == '' then return 1 end
-- What a writer that died left of a longer entry.
forget(ARGV[1], tonumber(ARGV[5]))
-- The entry is whole, and readers at other replicas are told of it.
if redis.call('PTTL', KEYS[2]) > 0 then
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[7], '*', 'i', ARGV[6], 'r', '0')
  if redis.call('PTTL', KEYS[3]) < tonumber(ARGV[8]) then redis.call('PEXPIRE', KEYS[3], ARGV[8]) end
end
return 1
