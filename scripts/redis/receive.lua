#!lua flags=allow-oom
-- Second step of a transfer, on the borrower: puts the units that were lent into the segment.
--
-- Contract. Call it only with what lend.lua has answered. The transfer is remembered for the whole
-- epoch, so the units arrive once, however often this runs and however late a copy comes. The segment's
-- version is raised.
-- Runs also when Redis' memory is full (see the first line): it ends what has begun.
--
-- KEYS[1] meta, KEYS[2] transfers: as in lend.lua
-- ARGV[1] transfer id · ARGV[2] units
--
-- Returns 0 arrived, now or before · 1 not loaded here · 2 sealed by a newer epoch. Complexity: O(1).

local meta_key, transfers_key = KEYS[1], KEYS[2]
local transfer, units = ARGV[1], tonumber(ARGV[2])
local SENTINEL = ''

local meta = redis.pcall('HMGET', meta_key, 'token', 'sealed')
local known = redis.pcall('HMGET', transfers_key, SENTINEL, transfer)
local token = meta[1]
local info = redis.call('INFO', 'server', 'replication')
local run_id_at, replid_at = info:find('run_id:', 1, true), info:find('replid:', 1, true)
local run_id = info:sub(run_id_at + 27, run_id_at + 46) .. info:sub(replid_at + 7, replid_at + 26)
if not token or token ~= run_id or known[1] ~= token then
  return 1
end
if meta[2] then
  return 2
end
if known[2] then
  return 0
end
redis.call('HSET', transfers_key, transfer, units)
redis.call('HINCRBY', meta_key, 'available', units)
redis.call('HINCRBY', meta_key, 'borrowed', units)
redis.call('HINCRBY', meta_key, 'version', 1)
return 0
