#!lua flags=allow-oom
-- Ends one acquisition of a lock that lets its holder in again; the last one frees it.
--
-- Contract. Each token is counted down once: repeatable. Those who wait are woken when the lock is free.
-- Runs also when Redis' memory is full (see the first line).
--
-- KEYS[1] lock  hash  see reentrant_acquire.lua
-- ARGV[1] owner · ARGV[2] token · ARGV[3] channel of those who wait
--
-- Returns 1 ended · 0 not held under this token. Complexity: O(1), and O(waiting) for the message.

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local ends_ms = redis.call('HGET', KEYS[1], 'token:' .. ARGV[2])
if not ends_ms then
  return 0
end
redis.call('HDEL', KEYS[1], 'token:' .. ARGV[2])
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) <= 0 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[3], '0')
end
return tonumber(ends_ms) > now_ms and 1 or 0
