#!lua flags=allow-oom
-- Ends an acquisition of a fair lock, held or waiting, and wakes the first in the queue.
--
-- Contract. Only this token's lock and place go. Repeatable.
-- Runs also when Redis' memory is full (see the first line).
--
-- KEYS[1] lock, KEYS[2] queue, KEYS[3] waiters: see fair_acquire.lua
-- ARGV[1] token · ARGV[2] what a waiter's channel begins with; its token follows
--
-- Returns 1 released · 0 not held under this token. Complexity: O(log waiters).

local token = ARGV[1]
redis.call('ZREM', KEYS[2], token)
redis.call('ZREM', KEYS[3], token)
local held = redis.call('GET', KEYS[1]) == token
if held then
  redis.call('DEL', KEYS[1])
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
if first and redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('PUBLISH', ARGV[2] .. first, '0')
end
return held and 1 or 0
