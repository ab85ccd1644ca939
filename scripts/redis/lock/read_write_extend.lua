#!lua flags=allow-oom
-- Prolongs the lease of one holder of a read-write lock.
--
-- Contract. Only this token's lease changes; one that ran out stays lost. Repeatable.
--
-- KEYS[1] writer, KEYS[2] readers: see shared_acquire.lua
-- ARGV[1] owner · ARGV[2] token · ARGV[3] lease from now on, ms
--
-- Returns 1 prolonged · 0 not held under this token. Complexity: O(log readers + dead ones).

local token, lease_ms = ARGV[2], tonumber(ARGV[3])
if redis.call('GET', KEYS[1]) == ARGV[1] .. ':' .. token then
  return redis.call('PEXPIRE', KEYS[1], lease_ms)
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms)
if not redis.call('ZSCORE', KEYS[2], token) then
  return 0
end
redis.call('ZADD', KEYS[2], now_ms + lease_ms, token)
if redis.call('PTTL', KEYS[2]) < lease_ms then
  redis.call('PEXPIRE', KEYS[2], lease_ms)
end
return 1
