#!lua flags=no-writes
-- Reads a segment's figures.
--
-- Contract. Reads only; all figures are of one instant.
--
-- KEYS[1] meta, KEYS[2] buyers, KEYS[3] requests, KEYS[4] journal: as in purchase.lua
-- KEYS[5] transfers: as in lend.lua
--
-- Returns { status, now_ms, available, journaled, version, control, entries, in_transfer, filled, lent,
--           borrowed }
--   status       0 loaded · 1 not loaded here · 2 sealed by a newer epoch
--   entries      length of the journal
--   in_transfer  units of transfers that this segment has lent and that are not settled
--   filled       units that the load brought · lent, borrowed: units since then
--
-- Complexity: O(1).

local meta_key, buyers_key, requests_key, journal_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local transfers_key = KEYS[5]
local SENTINEL = ''

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local meta = redis.pcall('HMGET', meta_key, 'token', 'sealed', 'available', 'journaled', 'version',
  'control', 'in_transfer', 'filled', 'lent', 'borrowed')
local token = meta[1]
local info = redis.call('INFO', 'server', 'replication')
local run_id_at, replid_at = info:find('run_id:', 1, true), info:find('replid:', 1, true)
local run_id = info:sub(run_id_at + 27, run_id_at + 46) .. info:sub(replid_at + 7, replid_at + 26)
if not token or token ~= run_id or redis.pcall('HGET', buyers_key, SENTINEL) ~= token
  or redis.pcall('HGET', requests_key, SENTINEL) ~= token
  or redis.pcall('HGET', transfers_key, SENTINEL) ~= token
  or redis.call('TYPE', journal_key).ok ~= 'stream' then
  return { 1, now_ms, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
end
local number = {}
for i = 3, 10 do
  number[i] = tonumber(meta[i])
  if not number[i] then
    return { 1, now_ms, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  end
end
return { meta[2] and 2 or 0, now_ms, number[3], number[4], number[5], number[6],
  redis.call('XLEN', journal_key), number[7], number[8], number[9], number[10] }
