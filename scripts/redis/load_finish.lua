#!lua
-- Checks that a segment was written whole, and opens it to the purchase script.
--
-- Contract. Marks the segment as loaded only if both hashes hold exactly as many fields as the loader
-- wrote: a Redis that lost a part in between is noticed. The token is run_id and replication id: this
-- very process, with data that it has not taken over from another server; half of each, since longer
-- values cost small hashes their compact form;
-- epoch and segment are in the keys' names. Repeatable; a second call changes nothing.
--
-- KEYS[1] meta, KEYS[2] buyers, KEYS[3] requests, KEYS[4] journal: as in purchase.lua
-- KEYS[5] transfers: as in lend.lua
-- ARGV[1] buyers written · ARGV[2] requests written
-- ARGV[3…] field, value, … of meta (available, filled, per_buyer_limit, window, switches, control)
--
-- Returns 0 loaded, now or before · 1 the counts differ: load again. Complexity: O(fields of meta).

local meta_key, buyers_key, requests_key, journal_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local transfers_key = KEYS[5]
local buyers_written, requests_written = tonumber(ARGV[1]), tonumber(ARGV[2])
local FIRST = 3
local SENTINEL = ''

local info = redis.call('INFO', 'server', 'replication')
local run_id_at, replid_at = info:find('run_id:', 1, true), info:find('replid:', 1, true)
local token = info:sub(run_id_at + 27, run_id_at + 46) .. info:sub(replid_at + 7, replid_at + 26)
local known = redis.call('HGET', meta_key, 'token')
if known == token then
  return 0
end
if known or redis.call('HLEN', buyers_key) ~= buyers_written
  or redis.call('HLEN', requests_key) ~= requests_written then
  return 1
end

redis.call('XDEL', journal_key, redis.call('XADD', journal_key, '*', 'load', ''))
redis.call('HSET', buyers_key, SENTINEL, token)
redis.call('HSET', requests_key, SENTINEL, token)
redis.call('HSET', transfers_key, SENTINEL, token)
redis.call('PERSIST', buyers_key)
redis.call('PERSIST', requests_key)
redis.call('HSET', meta_key, unpack(ARGV, FIRST))
redis.call('HSET', meta_key, 'journaled', 0, 'in_transfer', 0, 'lent', 0, 'borrowed', 0, 'version', 0,
  'token', token)
return 0
