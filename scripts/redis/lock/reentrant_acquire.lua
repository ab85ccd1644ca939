#!lua
-- Takes a lock that lets its holder in again.
--
-- Contract. At most one owner holds the lock; every acquisition of it has a token and is counted once, so
-- that a call whose answer was lost may be repeated. The fence belongs to the owner's turn: it does not
-- change while the owner is inside. An inner acquisition never shortens the lease. Each has a lease of its own:
-- one whose release was lost does not count for as long as its owner comes again, but until that lease ends.
-- The layout is that of Redisson's RLock (hash owner -> count), with fields of ours beside it.
--
-- KEYS[1] lock  hash    owner -> count · "token:<token>" -> Redis time, ms, at which its lease ends ·
--                       "fence" -> number
-- KEYS[2] fence string  number of the latest turn
-- ARGV[1] owner · ARGV[2] token · ARGV[3] lease, ms
--
-- Returns { 1, fence } held · { 0, ms until the holder's lease ends }. Complexity: O(acquisitions inside).

local lock, owner, token_field, lease_ms = KEYS[1], ARGV[1], 'token:' .. ARGV[2], tonumber(ARGV[3])

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- Those whose own lease has ended count no more.
local past, holder = {}, nil
local fields = redis.call('HGETALL', lock)
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 6) ~= 'token:' then
    holder = fields[i] ~= 'fence' and fields[i] or holder
  elseif tonumber(fields[i + 1]) <= now_ms then
    past[#past + 1] = fields[i]
  end
end
for _, field in ipairs(past) do
  redis.call('HDEL', lock, field)
  if redis.call('HINCRBY', lock, holder, -1) <= 0 then
    redis.call('DEL', lock)
  end
end

local left_ms = redis.call('PTTL', lock)
if left_ms ~= -2 and redis.call('HEXISTS', lock, owner) == 0 then
  return { 0, left_ms }
end
if left_ms == -2 then
  redis.call('HSET', lock, 'fence', redis.call('INCR', KEYS[2]))
end
if redis.call('HSETNX', lock, token_field, now_ms + lease_ms) == 1 then
  redis.call('HINCRBY', lock, owner, 1)
end
if left_ms < lease_ms then
  redis.call('PEXPIRE', lock, lease_ms)
end
return { 1, tonumber(redis.call('HGET', lock, 'fence') or 0) }
