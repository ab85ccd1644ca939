#!lua flags=allow-oom
-- Releases a lock if the caller still holds it.
--
-- Contract. A lock that ran out and was taken by somebody else is left alone: the token names one
-- acquisition. Repeatable.
-- Runs also when Redis' memory is full (see the first line).
--
-- KEYS[1] the lock
-- ARGV[1] token of the acquisition
--
-- Returns 1 released · 0 not held under this token. Complexity: O(1).

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
