#!lua
-- Takes a lock in the order in which it was asked for.
--
-- Contract. Nobody is granted the lock before those who asked earlier and still wait. Whoever waits says so
-- again before its waiter's lease ends; who does not is taken for dead and leaves the queue, so a dead
-- waiter costs at most one such lease. Time is Redis' own. Repeatable: the token that holds the lock is told
-- so, with the same fence, and whoever waits keeps the place.
--
-- KEYS[1] lock    string  token of the holder, with a time to live
-- KEYS[2] queue   zset    token -> number in the queue
-- KEYS[3] waiters zset    token -> Redis time, ms, until which it waits
-- KEYS[4] fence   string  number of the latest acquisition
-- KEYS[5] numbers string  number that the latest waiter drew
-- ARGV[1] token · ARGV[2] lease, ms · ARGV[3] waiter's lease, ms
--
-- Returns { 1, fence } held · { 0, ms after which to ask again }. Complexity: O(log waiters + dead waiters).

local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local token, lease_ms, waiter_lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

local holder = redis.call('GET', lock)
if holder == token then
  return { 1, tonumber(redis.call('GET', KEYS[4])) }
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local dead = redis.call('ZRANGEBYSCORE', waiters, '-inf', now_ms)
if #dead > 0 then
  redis.call('ZREM', queue, unpack(dead, 1, math.min(#dead, 5000)))
  redis.call('ZREM', waiters, unpack(dead, 1, math.min(#dead, 5000)))
end

local first = redis.call('ZRANGE', queue, 0, 0)[1]
if not holder and (not first or first == token) then
  redis.call('ZREM', queue, token)
  redis.call('ZREM', waiters, token)
  redis.call('SET', lock, token, 'PX', lease_ms)
  return { 1, redis.call('INCR', KEYS[4]) }
end

if not redis.call('ZSCORE', queue, token) then
  redis.call('ZADD', queue, redis.call('INCR', KEYS[5]), token)
end
redis.call('ZADD', waiters, now_ms + waiter_lease_ms, token)
-- Half of the waiter's lease, so that a lost message or a dead neighbour costs no more than that; the first
-- in the queue also asks when the holder's lease ends.
local again_ms = math.floor(waiter_lease_ms / 2)
if holder and (not first or first == token) then
  local left_ms = redis.call('PTTL', lock)
  again_ms = left_ms < 0 and again_ms or math.min(again_ms, math.max(left_ms, 1))
end
return { 0, again_ms }
