#!lua flags=allow-oom
-- Releases a lock if the caller still holds it, and wakes those who wait.
--
-- Contract. A lock that ran out and was taken by somebody else is left alone: the token names one
-- acquisition. Repeatable.
-- Runs also when Redis' memory is full (see the first line).
--
-- KEYS[1] the lock
-- ARGV[1] token of the acquisition · ARGV[2] channel of those who wait
--
-- Returns 1 released · 0 not held under this token. Complexity: O(1), and O(waiting) for the message.

if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], '0')
  return 1
end
return 0
