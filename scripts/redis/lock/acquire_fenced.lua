#!lua
-- Takes a lock that has a fence.
--
-- Contract. At most one token holds the lock at a time. The fence is the number of the acquisition: larger
-- than that of every holder before, as long as the counter is kept; it is never deleted. Repeatable: the
-- token that holds the lock is told so, with the same fence.
--
-- KEYS[1] lock  string  token of the holder, with a time to live
-- KEYS[2] fence string  number of the latest acquisition
-- ARGV[1] token · ARGV[2] lease, ms
--
-- Returns { 1, fence } held · { 0, ms until the holder's lease ends }. Complexity: O(1).

local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  return { 1, tonumber(redis.call('GET', KEYS[2])) }
elseif holder then
  return { 0, redis.call('PTTL', KEYS[1]) }
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return { 1, redis.call('INCR', KEYS[2]) }
