#!lua
-- Takes several locks, all or none.
--
-- Contract. Either every lock is this token's afterwards, or nothing has changed. Repeatable. On a Redis
-- Cluster all names must lie in one slot.
--
-- KEYS    the locks: strings, token of the holder, with a time to live
-- ARGV[1] token · ARGV[2] lease, ms
--
-- Returns 0 held · else ms until the last of the leases that are in the way ends; 1000 for one that never ends.
-- Complexity: O(locks).

local longest_ms = 0
for _, lock in ipairs(KEYS) do
  local holder = redis.call('GET', lock)
  if holder and holder ~= ARGV[1] then
    local left_ms = redis.call('PTTL', lock)
    longest_ms = math.max(longest_ms, left_ms < 0 and 1000 or left_ms, 1)
  end
end
if longest_ms > 0 then
  return longest_ms
end
for _, lock in ipairs(KEYS) do
  redis.call('SET', lock, ARGV[1], 'PX', ARGV[2])
end
return 0
