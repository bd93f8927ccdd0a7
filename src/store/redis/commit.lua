-- One change of one task, whole or not at all.
-- KEYS: record, request, due, log, then the index to leave (if ARGV[10] is 1), the one to join (if
--       ARGV[11] is 1) and the caller's list (if ARGV[13] is 1, only with create).
-- ARGV: 1 expected revision ('' creates), 2 expected nonce, 3 new revision, 4 new nonce, 5 caller,
--       6 record, 7 expiry ms, 8 due ms or '', 9 id, 10 leaves, 11 joins, 12 log length,
--       13 listed, 14 ends, 15 request, where there is one.
-- Revisions stay text: Lua's numbers are exact only to 2^53.
local found = redis.call('HMGET', KEYS[1], 'r', 'w')
local r, w = found[1], found[2]
if not r then
  if ARGV[1] ~= '' then return {'gone'} end
elseif w == ARGV[4] then
  -- Written again, with what stands, so that a WAIT on this connection waits for it too.
  redis.call('PEXPIREAT', KEYS[1], ARGV[7])
  return {'done', r}
elseif r ~= ARGV[1] or w ~= ARGV[2] then
  return {'conflict', unpack(redis.call('HMGET', KEYS[1], 'r', 'w', 'c', 'd'))}
end

local indexes = #KEYS - tonumber(ARGV[13])
local list = KEYS[indexes + 1]

-- A full Redis refuses the first write of a script or none. The end of a task begins with a write that
-- is always allowed, so that cancel and expiry work there. All else begins with the growing write.
if ARGV[14] == '1' then redis.call('ZREM', KEYS[3], ARGV[9]) end
if r then
  -- The expiry was fixed with create and stays.
  redis.call('HSET', KEYS[1], 'd', ARGV[6], 'r', ARGV[3], 'w', ARGV[4])
else
  -- A script that fails half-way is not rolled back: a key of another type must fail here, before
  -- the first write of the first commit that needs it.
  redis.call('ZCARD', KEYS[3])
  redis.call('XLEN', KEYS[4])
  for i = 5, indexes do redis.call('SCARD', KEYS[i]) end
  if list then redis.call('ZCARD', list) end
  redis.call('HSET', KEYS[1], 'd', ARGV[6], 'r', ARGV[3], 'w', ARGV[4], 'c', ARGV[5])
  redis.call('PEXPIREAT', KEYS[1], ARGV[7])
end
-- What is left by this server's clock; below 1 when it expires at once.
local left = redis.call('PTTL', KEYS[1])

-- A shared key lives as long as the longest of its tasks. Compared as what is left, because GT
-- came with Redis 7 and takes a key without expiry as infinite.
local function outlives(key)
  if redis.call('PTTL', key) < left then redis.call('PEXPIRE', key, left) end
end

if r then
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[12], '*', 'i', ARGV[9], 'r', ARGV[3])
  outlives(KEYS[4])
elseif ARGV[15] and left > 0 then
  redis.call('SET', KEYS[2], ARGV[15], 'PXAT', ARGV[7])
end

if ARGV[8] ~= '' and left > 0 then
  redis.call('ZADD', KEYS[3], ARGV[8], ARGV[9])
  outlives(KEYS[3])
elseif ARGV[14] ~= '1' then
  redis.call('ZREM', KEYS[3], ARGV[9])
end

if ARGV[10] == '1' then redis.call('SREM', KEYS[5], ARGV[9]) end
-- An index that already names the task outlives it already.
if ARGV[11] == '1' and left > 0 and redis.call('SADD', KEYS[indexes], ARGV[9]) == 1 then
  outlives(KEYS[indexes])
end

if list and left > 0 then
  redis.call('ZADD', list, ARGV[7], ARGV[9])
  outlives(list)
  -- The clock, as the record's expiry tells it. A few, so that no commit waits long: more go than come.
  local now = string.format('%.0f', tonumber(ARGV[7]) - left)
  local gone = redis.call('ZRANGEBYSCORE', list, '-inf', now, 'LIMIT', 0, 64)
  if #gone > 0 then redis.call('ZREM', list, unpack(gone)) end
end
return {'done', ARGV[3]}
