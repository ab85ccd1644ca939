#!lua
-- Takes a read-write lock to read.
--
-- Contract. Readers hold it together, each with a lease of its own, and never with a writer of another
-- owner; the writer's owner may read too, and keeps reading when it has stopped writing. No reader overtakes
-- a writer that waits. Time is Redis' own. Repeatable.
--
-- KEYS[1] writer  string  "<owner>:<token>", with a time to live
-- KEYS[2] readers zset    token -> Redis time, ms, at which its lease ends
-- KEYS[3] writers zset    token of a waiting writer -> Redis time, ms, until which it waits
-- ARGV[1] owner · ARGV[2] token · ARGV[3] lease, ms
--
-- Returns { 1, 0 } held · { 0, ms after which to ask again; -1: not known }. Complexity: O(log readers + dead ones).

local writer, readers, writers = KEYS[1], KEYS[2], KEYS[3]
local owner, token, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', readers, '-inf', now_ms)
redis.call('ZREMRANGEBYSCORE', writers, '-inf', now_ms)
local until_ms = redis.call('ZSCORE', readers, token)
if until_ms then
  return { 1, 0 }
end

local holder = redis.call('GET', writer)
local own = holder and string.sub(holder, 1, #owner + 1) == owner .. ':'
if holder and not own then
  local left_ms = redis.call('PTTL', writer)
  return { 0, left_ms == 0 and 1 or left_ms }
end
if not own then
  local first = redis.call('ZRANGE', writers, 0, 0, 'WITHSCORES')
  if first[1] then
    return { 0, math.max(first[2] - now_ms, 1) }
  end
end
redis.call('ZADD', readers, now_ms + lease_ms, token)
if redis.call('PTTL', readers) < lease_ms then
  redis.call('PEXPIRE', readers, lease_ms)
end
return { 1, 0 }
