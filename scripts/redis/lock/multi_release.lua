#!lua flags=allow-oom
-- Releases several locks, each if the caller still holds it, and wakes those who wait for one of them.
--
-- Contract. As release.lua, for each. Repeatable.
--
-- KEYS    the locks
-- ARGV[1] token · ARGV[2…] the channel of each lock's waiters
--
-- Returns how many were held under this token. Complexity: O(locks), and O(waiting) for the messages.

local released = 0
for i, lock in ipairs(KEYS) do
  if redis.call('GET', lock) == ARGV[1] then
    redis.call('DEL', lock)
    redis.call('PUBLISH', ARGV[i + 1], '0')
    released = released + 1
  end
end
return released
