#!lua
-- Writes a part of the buyers and requests of a segment that is being loaded.
--
-- Contract. Does nothing once the load is finished: a late copy of a chunk must not undo what was sold
-- since. Until it is finished the keys run out by themselves, so that a loader that dies leaves nothing.
--
-- KEYS[1] meta, KEYS[2] buyers, KEYS[3] requests: as in purchase.lua
-- ARGV[1] milliseconds until an unfinished load runs out
-- ARGV[2] number of buyer fields that follow
-- ARGV[3…] buyer, units, … then order id, mark, …
--
-- Returns 0 written · 1 the load was finished before. Complexity: O(fields).

local meta_key, buyers_key, requests_key = KEYS[1], KEYS[2], KEYS[3]
local lease_ms, buyer_fields = ARGV[1], tonumber(ARGV[2])
local FIRST = 3

if redis.call('HEXISTS', meta_key, 'token') == 1 then
  return 1
end

local function write(key, from, to)
  if from > to then
    return
  end
  redis.call('HSET', key, unpack(ARGV, from, to))
  redis.call('PEXPIRE', key, lease_ms)
end

write(buyers_key, FIRST, FIRST + buyer_fields - 1)
write(requests_key, FIRST + buyer_fields, #ARGV)
return 0
