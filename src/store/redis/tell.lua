-- Enters an id in the change log although no record changes.
-- KEYS: log. ARGV: 1 id, 2 log length, 3 ms for which the log stays at least.
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'i', ARGV[1], 'r', '0')
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
