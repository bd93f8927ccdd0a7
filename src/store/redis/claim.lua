-- Writes a note where none stands; what stands there instead is returned.
-- KEYS: note. ARGV: 1 value, 2 expiry ms.
local stands = redis.call('GET', KEYS[1])
if not stands then
  redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])
elseif stands == ARGV[1] then
  -- Written again, so that a WAIT on this connection waits for it too.
  redis.call('PEXPIREAT', KEYS[1], ARGV[2])
else
  return {stands}
end
return {}
