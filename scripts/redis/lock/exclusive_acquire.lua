#!lua
-- Takes a read-write lock to write.
--
-- Contract. A writer holds it alone. One that waits says so again before its waiter's lease ends; meanwhile
-- no new reader comes in, and a dead one costs at most one such lease. Time is Redis' own. Repeatable: the
-- token that holds the lock is told so, with the same fence.
--
-- KEYS[1] writer, KEYS[2] readers, KEYS[3] writers: see shared_acquire.lua
-- KEYS[4] fence   string  number of the latest writer
-- ARGV[1] owner · ARGV[2] token · ARGV[3] lease, ms · ARGV[4] waiter's lease, ms
--
-- Returns { 1, fence } held · { 0, ms after which to ask again }. Complexity: O(log readers + dead ones).

local writer, readers, writers = KEYS[1], KEYS[2], KEYS[3]
local holds, token = ARGV[1] .. ':' .. ARGV[2], ARGV[2]
local lease_ms, waiter_lease_ms = ARGV[3], tonumber(ARGV[4])

local holder = redis.call('GET', writer)
if holder == holds then
  return { 1, tonumber(redis.call('GET', KEYS[4])) }
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', readers, '-inf', now_ms)
if not holder and redis.call('ZCARD', readers) == 0 then
  redis.call('ZREM', writers, token)
  redis.call('SET', writer, holds, 'PX', lease_ms)
  return { 1, redis.call('INCR', KEYS[4]) }
end

redis.call('ZADD', writers, now_ms + waiter_lease_ms, token)
if redis.call('PTTL', writers) < waiter_lease_ms then
  redis.call('PEXPIRE', writers, waiter_lease_ms)
end
local again_ms = math.floor(waiter_lease_ms / 2)
if holder then
  local left_ms = redis.call('PTTL', writer)
  again_ms = left_ms < 0 and again_ms or math.min(again_ms, math.max(left_ms, 1))
else
  local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')
  again_ms = math.min(again_ms, math.max(last[2] - now_ms, 1))
end
return { 0, again_ms }
