#!lua flags=allow-oom
-- Prolongs the lease of a lock that lets its holder in again, if this acquisition still counts.
--
-- Contract. Never shortens the key's time: an acquisition around this one may have asked for more. Repeatable.
--
-- KEYS[1] lock  hash  see reentrant_acquire.lua
-- ARGV[1] token · ARGV[2] lease from now on, ms
--
-- Returns 1 prolonged · 0 not held under this token. Complexity: O(1).

local lock, token_field, lease_ms = KEYS[1], 'token:' .. ARGV[1], tonumber(ARGV[2])

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local ends_ms = redis.call('HGET', lock, token_field)
if not ends_ms or tonumber(ends_ms) <= now_ms then
  return 0
end
redis.call('HSET', lock, token_field, now_ms + lease_ms)
if redis.call('PTTL', lock) < lease_ms then
  redis.call('PEXPIRE', lock, lease_ms)
end
return 1
