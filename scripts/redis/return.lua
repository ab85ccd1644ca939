#!lua flags=allow-oom
-- Puts the units of ended orders back into the segment, and restores their buyers' allowance.
--
-- Contract. Each order's units come back once: the mark in `requests` changes in the same step. The
-- segment's version is raised with every unit that comes back, so that whoever has counted the segments
-- in the meantime knows that the count is stale.
-- Runs also when Redis' memory is full (see the first line).
--
-- KEYS[1] meta, KEYS[2] buyers, KEYS[3] requests: as in purchase.lua
-- ARGV    order id, buyer, quantity of each order
--
-- Returns { status, answer, answer, … }
--   status  0 done · 1 not loaded here · 2 sealed by a newer epoch
--   answer  1 came back now · 0 had come back before · -1 this load does not know the order
--
-- Complexity: O(orders).

local meta_key, buyers_key, requests_key = KEYS[1], KEYS[2], KEYS[3]
local STRIDE = 3
local SENTINEL = ''

local meta = redis.pcall('HMGET', meta_key, 'token', 'sealed')
local token = meta[1]
local info = redis.call('INFO', 'server', 'replication')
local run_id_at, replid_at = info:find('run_id:', 1, true), info:find('replid:', 1, true)
local run_id = info:sub(run_id_at + 27, run_id_at + 46) .. info:sub(replid_at + 7, replid_at + 26)
if not token or token ~= run_id or redis.pcall('HGET', buyers_key, SENTINEL) ~= token
  or redis.pcall('HGET', requests_key, SENTINEL) ~= token then
  return { 1 }
end
if meta[2] then
  return { 2 }
end

local reply, returned = { 0 }, 0
for i = 1, #ARGV, STRIDE do
  local id, buyer, quantity = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local mark = redis.call('HGET', requests_key, id)
  if not mark or mark == 'v' then
    reply[#reply + 1] = -1
  elseif string.sub(mark, -1) == 'r' then
    reply[#reply + 1] = 0
  else
    redis.call('HSET', requests_key, id, mark .. 'r')
    if redis.call('HINCRBY', buyers_key, buyer, -quantity) <= 0 then
      redis.call('HDEL', buyers_key, buyer)
    end
    returned = returned + quantity
    reply[#reply + 1] = 1
  end
end
if returned > 0 then
  redis.call('HINCRBY', meta_key, 'available', returned)
  redis.call('HINCRBY', meta_key, 'version', 1)
end
return reply
