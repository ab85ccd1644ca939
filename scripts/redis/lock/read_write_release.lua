#!lua flags=allow-oom
-- Ends an acquisition of a read-write lock, of either mode, held or waiting, and wakes those who wait.
--
-- Contract. Only this token's part goes: a reader's leave changes nothing of the writer, and the other way
-- round. Repeatable. Runs also when Redis' memory is full (see the first line).
--
-- KEYS[1] writer, KEYS[2] readers, KEYS[3] writers: see shared_acquire.lua
-- ARGV[1] owner · ARGV[2] token · ARGV[3] channel of those who wait
--
-- Returns 1 released · 0 not held under this token. Complexity: O(log readers), and O(waiting) for the
-- message.

local token = ARGV[2]
local waited = redis.call('ZREM', KEYS[3], token)
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms)
local held = redis.call('ZREM', KEYS[2], token)
if redis.call('GET', KEYS[1]) == ARGV[1] .. ':' .. token then
  held = redis.call('DEL', KEYS[1])
end
if held + waited > 0 then
  redis.call('PUBLISH', ARGV[3], '0')
end
return held
