#!lua flags=allow-oom
-- Brings the segment's switches to what the ledger says: window, pause, close, sold out.
--
-- Contract. Only a newer setting is applied (the ledger numbers them), so calls may be repeated, late or
-- out of order. "Sold out" is only ever set, and ends with the epoch: confirmed orders stay confirmed.
-- Runs also when Redis' memory is full (see the first line).
--
-- KEYS[1] meta  hash
-- ARGV[1] control number · ARGV[2] opens_at_ms or "" · ARGV[3] closes_at_ms or "" · ARGV[4] paused "1"/"0"
-- ARGV[5] closed "1"/"0" · ARGV[6] sold out "1"/"0"
--
-- Returns 0 applied or already so · 1 not loaded. Complexity: O(1).

local meta_key = KEYS[1]
local control, opens_at_ms, closes_at_ms = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local paused, closed, sold_out = ARGV[4] == '1', ARGV[5] == '1', ARGV[6] == '1'

local function switch(field, value)
  if value then
    redis.call('HSET', meta_key, field, value)
  else
    redis.call('HDEL', meta_key, field)
  end
end

local known = redis.pcall('HMGET', meta_key, 'token', 'control')
if not known[1] then
  return 1
end
if sold_out then
  switch('sold_out', '1')
end
if tonumber(known[2]) < control then
  switch('control', control)
  switch('opens_at_ms', opens_at_ms ~= '' and opens_at_ms)
  switch('closes_at_ms', closes_at_ms ~= '' and closes_at_ms)
  switch('paused', paused and '1')
  switch('closed', closed and '1')
end
return 0
