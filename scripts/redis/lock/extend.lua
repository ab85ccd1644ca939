#!lua flags=allow-oom
-- Prolongs the lease of a lock if the caller still holds it.
--
-- Contract. A lock that ran out is not taken again, and nobody else's lease is touched. Repeatable.
--
-- KEYS[1] the lock
-- ARGV[1] token of the acquisition · ARGV[2] lease from now on, ms
--
-- Returns 1 prolonged · 0 not held under this token. Complexity: O(1).

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
