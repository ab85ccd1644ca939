#!lua
-- Reads a value that is guarded by a fence, and raises the fence.
--
-- Contract. From now on no holder with a smaller fence can write: without that, one could write between this
-- read and the write that follows from it. Repeatable.
--
-- KEYS[1] hash: fence, value
-- ARGV[1] fence of the reader
--
-- Returns { 1, value or "" } · { 0, the larger fence that was seen }. Complexity: O(1).

local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if seen > tonumber(ARGV[1]) then
  return { 0, tostring(seen) }
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return { 1, redis.call('HGET', KEYS[1], 'value') or '' }
