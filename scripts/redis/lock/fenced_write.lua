#!lua
-- Writes a value that is guarded by a fence.
--
-- Contract. Written only if no holder with a larger fence has read or written it before. Repeatable.
--
-- KEYS[1] hash: fence, value
-- ARGV[1] fence of the writer · ARGV[2] value
--
-- Returns 0 written · else the larger fence that was seen. Complexity: O(1).

local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if seen > tonumber(ARGV[1]) then
  return seen
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 0
