#!lua flags=allow-oom
-- Prolongs the lease of a lock that lets its holder in again, if this acquisition still counts.
--
-- Contract. Never shortens a lease: an acquisition around this one may have asked for more. Repeatable.
--
-- KEYS[1] lock  hash  see reentrant_acquire.lua
-- ARGV[1] token · ARGV[2] lease from now on, ms
--
-- Returns 1 prolonged · 0 not held under this token. Complexity: O(1).

if redis.call('HEXISTS', KEYS[1], 'token:' .. ARGV[1]) == 0 then
  return 0
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
