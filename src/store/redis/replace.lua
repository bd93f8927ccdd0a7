-- Writes a note where a known one stands.
-- KEYS: note. ARGV: 1 what stands there, 2 value, 3 expiry ms. 1 where it is written.
local stands = redis.call('GET', KEYS[1])
-- The value itself stands there where this was sent before.
if stands == ARGV[1] or stands == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[2], 'PXAT', ARGV[3])
  return 1
end
return 0
