#!lua flags=allow-oom
-- Prolongs the leases of several locks, all or none.
--
-- Contract. If one of them is not this token's any more, none is prolonged. Repeatable.
--
-- KEYS    the locks
-- ARGV[1] token · ARGV[2] lease from now on, ms
--
-- Returns 1 prolonged · 0 not all held under this token. Complexity: O(locks).

for _, lock in ipairs(KEYS) do
  if redis.call('GET', lock) ~= ARGV[1] then
    return 0
  end
end
for _, lock in ipairs(KEYS) do
  redis.call('PEXPIRE', lock, ARGV[2])
end
return 1
