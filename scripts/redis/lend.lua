#!lua
-- First step of a transfer, on the donor: takes units out of the segment for another one.
--
-- Contract. The transfer's id and its units are remembered for the whole epoch, so however often this
-- runs, and however late a copy comes, the units leave once. They count as in transfer until
-- transfer_settle.lua. What is lent is never more than is available; nothing available: nothing is lent
-- and nothing remembered. The segment's version is raised with every lend.
--
-- KEYS[1] meta       hash
-- KEYS[2] transfers  hash   transfer id -> units that it moved out of or into this segment
-- ARGV[1] transfer id · ARGV[2] number of the segment that borrows · ARGV[3] units wanted
--
-- Returns { status, units }
--   status  0 done · 1 not loaded here · 2 sealed by a newer epoch
--   units   lent under this id, now or before
--
-- Complexity: O(1).

local meta_key, transfers_key = KEYS[1], KEYS[2]
local transfer, borrower, wanted = ARGV[1], ARGV[2], tonumber(ARGV[3])
local SENTINEL = ''

local meta = redis.pcall('HMGET', meta_key, 'token', 'sealed', 'available')
local known = redis.pcall('HMGET', transfers_key, SENTINEL, transfer)
local token = meta[1]
local info = redis.call('INFO', 'server', 'replication')
local run_id_at, replid_at = info:find('run_id:', 1, true), info:find('replid:', 1, true)
local run_id = info:sub(run_id_at + 27, run_id_at + 46) .. info:sub(replid_at + 7, replid_at + 26)
if not token or token ~= run_id or known[1] ~= token or not tonumber(meta[3]) then
  return { 1, 0 }
end
if meta[2] then
  return { 2, 0 }
end
if known[2] then
  return { 0, tonumber(known[2]) }
end
local units = math.min(wanted, tonumber(meta[3]))
if units <= 0 then
  return { 0, 0 }
end
redis.call('HSET', transfers_key, transfer, units)
redis.call('HSET', meta_key, 'lent:' .. transfer, borrower .. ':' .. units)
redis.call('HINCRBY', meta_key, 'available', -units)
redis.call('HINCRBY', meta_key, 'in_transfer', units)
redis.call('HINCRBY', meta_key, 'lent', units)
redis.call('HINCRBY', meta_key, 'version', 1)
return { 0, units }
