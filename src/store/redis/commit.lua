-- One change of one task, whole or not at all.
-- KEYS: record, due, log, then those that ARGV[9] asks for: the index to leave, the one to join, the
--       caller's list, the request, the history.
-- ARGV: 1 expected revision ('' creates), 2 expected nonce, 3 new revision, 4 new nonce, 5 record,
--       6 expiry ms, 7 due ms or '', 8 id, 9 six digits, 1 for yes: leaves an index, joins one, is listed
--       (only with create), has a request, ends and adds next to nothing, has an entry of the history;
--       10 caller, with a create or a request; 11 request; the last three, with an entry of the history:
--       entry, its expiry ms, length of the history.
-- Few keys, arguments and calls: each of them costs Redis more than what most of the commands do.
-- Revisions stay text: Lua's numbers are exact only to 2^53.
local found = redis.call('HMGET', KEYS[1], 'r', 'w')
local r, w = found[1], found[2]
if not r then
  if ARGV[1] ~= '' then return {'gone'} end
elseif w == ARGV[4] then
  -- Written again, with what stands, so that a WAIT on this connection waits for it too.
  redis.call('PEXPIREAT', KEYS[1], ARGV[6])
  return r
elseif r ~= ARGV[1] or w ~= ARGV[2] then
  return {'conflict', unpack(redis.call('HMGET', KEYS[1], 'r', 'w', 'c', 'd'))}
end

local leaves, joins, listed, asked, ends, kept = string.byte(ARGV[9], 1, 6)
local YES = 49 -- the byte of 1
local last, left_index, index, list, request = 3
if leaves == YES then last = last + 1 left_index = KEYS[last] end
if joins == YES then last = last + 1 index = KEYS[last] end
if listed == YES then last = last + 1 list = KEYS[last] end
if asked == YES then last = last + 1 request = KEYS[last] end

-- A full Redis refuses the first write of a script or none. The end of a task begins with a write that
-- is always allowed, so that cancel and expiry work there. All else begins with a growing write.
if ends == YES then redis.call('ZREM', KEYS[2], ARGV[8]) end
-- What is left by this server's clock; below 1 when it expires at once. Most ends need not know it.
local left = 1
if r then
  -- The expiry was fixed with create and stays.
  redis.call('HSET', KEYS[1], 'd', ARGV[5], 'r', ARGV[3], 'w', ARGV[4])
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', '4096', '*', 'i', ARGV[8], 'r', ARGV[3])
  -- Followers read an entry within seconds: the log stays for half an hour at least after each.
  if redis.call('PTTL', KEYS[3]) < 1800000 then redis.call('PEXPIRE', KEYS[3], '3600000') end
  if ARGV[7] ~= '' or index or request then left = redis.call('PTTL', KEYS[1]) end
else
  -- A script that fails half-way is not rolled back. A log of another type must fail here, because the
  -- next commit needs it. Every other key of another type fails where it is written, and the record,
  -- without which nothing else counts, is written last.
  redis.call('XLEN', KEYS[3])
  local now = redis.call('TIME')
  left = ARGV[6] - (now[1] * 1000 + math.floor(now[2] / 1000))
end

-- A shared key lives as long as the longest of its tasks. Compared as what is left, because GT
-- came with Redis 7 and takes a key without expiry as infinite.
local function outlives(key)
  if redis.call('PTTL', key) < left then redis.call('PEXPIRE', key, left) end
end

if ARGV[7] ~= '' and left > 0 then
  redis.call('ZADD', KEYS[2], ARGV[7], ARGV[8])
  outlives(KEYS[2])
elseif ends ~= YES and r then
  redis.call('ZREM', KEYS[2], ARGV[8])
end

if left_index then redis.call('SREM', left_index, ARGV[8]) end
-- An index that already names the task outlives it already.
if index and left > 0 and redis.call('SADD', index, ARGV[8]) == 1 then outlives(index) end

if list and left > 0 then
  redis.call('ZADD', list, ARGV[6], ARGV[8])
  outlives(list)
  -- The clock, as the record's expiry tells it. A few, so that no commit waits long: more go than come.
  local now = string.format('%.0f', tonumber(ARGV[6]) - left)
  local gone = redis.call('ZRANGEBYSCORE', list, '-inf', now, 'LIMIT', 0, 64)
  if #gone > 0 then redis.call('ZREM', list, unpack(gone)) end
end

-- A request that stands already stays.
if request and left > 0 then redis.call('SET', request, ARGV[11], 'PXAT', ARGV[6], 'NX') end

if kept == YES then
  local history, n = KEYS[#KEYS], #ARGV
  redis.call('XADD', history, 'MAXLEN', '~', ARGV[n], '*', 'i', ARGV[8], 'e', ARGV[n - 2])
  redis.call('PEXPIREAT', history, ARGV[n - 1])
end

if not r then
  redis.call('HSET', KEYS[1], 'd', ARGV[5], 'r', ARGV[3], 'w', ARGV[4], 'c', ARGV[10])
  redis.call('PEXPIREAT', KEYS[1], ARGV[6])
end
return ARGV[3]
