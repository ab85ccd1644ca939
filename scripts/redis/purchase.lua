#!lua
-- Decides N purchases of one segment: all are answered, as many as fit are admitted.
--
-- Contract. Everything is read and decided first and written last, because Redis does not roll back a
-- script that fails half-way; the first line makes Redis refuse the whole script when its memory is full.
-- Deduction, buyers' units, request marks and journal entry change together or not at all. Running it
-- again with the same purchases admits nothing twice: it is safe to resend after a lost reply.
--
-- KEYS[1] meta      hash    the segment's figures and switches
-- KEYS[2] buyers    hash    buyer -> units in active orders
-- KEYS[3] requests  hash    order id (16 bytes) -> mark: "<quantity>" admitted, "<quantity>r" its units
--                           came back, "v" refused for good under this key
-- KEYS[4] journal   stream  one entry per call that admitted: order id -> "<quantity>:<buyer>", …
-- ARGV[1] "0", or "1" if a lost copy of these purchases may still arrive: refusals are then written down
--         as "v", so that the late copy cannot be admitted after the buyer was told no. But for lack of
--         stock, which other segments may have, only if this is the last word: "2"
-- ARGV[2] the latest Redis time, ms, at which this copy may still act; 0: none
-- ARGV[3…] order id, buyer, quantity of each purchase
--
-- Returns { status, now_ms, entry, sold_out, code, number, code, number, … }
--   status   0 decided · 1 not loaded here · 2 sealed by a newer epoch · 3 too late, nothing was done
--   entry    id of the journal entry, "" if nothing was admitted
--   sold_out 1 if the ledger has said that every unit is confirmed
--   code     number
--   1 admitted       0
--   2 replay         quantity     admitted before (or earlier in this batch)
--   3 void           0            refused for good under this key
--   4 key reused     quantity     the key names a purchase of this other quantity
--   5 limit reached  units left for this buyer
--   6 short          units available now
--   7 not open       opening time, ms; -1 if none is set
--   8 paused         0
--   9 closed         0
--
-- Complexity: O(N), with ten Redis commands whatever N is. Time is Redis' own: the clock of the window.

local meta_key, buyers_key, requests_key, journal_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local late_copy_possible, last_word = ARGV[1] ~= '0', ARGV[1] == '2'
local act_before_ms = tonumber(ARGV[2])
local FIRST, STRIDE = 3, 3
local SENTINEL, SHORT = '', 6

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if act_before_ms > 0 and now_ms > act_before_ms then
  return { 3, now_ms, '', 0 }
end

local ids, buyers = { SENTINEL }, { SENTINEL }
for i = FIRST, #ARGV, STRIDE do
  ids[#ids + 1] = ARGV[i]
  buyers[#buyers + 1] = ARGV[i + 1]
end

-- A hash that was evicted, deleted or restored from elsewhere lacks the token of this load in this very
-- process: then nothing here may be believed.
local meta = redis.call('HMGET', meta_key, 'token', 'sealed', 'closed', 'paused', 'opens_at_ms',
  'closes_at_ms', 'per_buyer_limit', 'available', 'sold_out')
local marks = redis.call('HMGET', requests_key, unpack(ids))
local units = redis.call('HMGET', buyers_key, unpack(buyers))
local token = meta[1]
local run_id = redis.call('INFO', 'server', 'replication'):gsub('.*run_id:(%x+).*replid:(%x+).*', '%1%2'):sub(21, 60)
if not token or token ~= run_id or marks[1] ~= token or units[1] ~= token
  or redis.call('TYPE', journal_key).ok ~= 'stream' then
  return { 1, now_ms, '', 0 }
end
if meta[2] then
  return { 2, now_ms, '', 0 }
end

local opens_at_ms, closes_at_ms = tonumber(meta[5]), tonumber(meta[6])
local limit, available = tonumber(meta[7]), tonumber(meta[8])
local shut_code, shut_number
if meta[3] or (closes_at_ms and now_ms >= closes_at_ms) then
  shut_code, shut_number = 9, 0
elseif meta[4] then
  shut_code, shut_number = 8, 0
elseif not opens_at_ms or now_ms < opens_at_ms then
  shut_code, shut_number = 7, opens_at_ms or -1
end

-- Two purchases of one buyer, or two copies of one purchase, may be in this batch: what the first one
-- changed must be seen by the second.
local mark_of, units_of = {}, {}
for i = 2, #ids do
  mark_of[ids[i]] = marks[i] or nil
  units_of[buyers[i]] = tonumber(units[i] or 0)
end

local reply = { 0, now_ms, '', meta[9] and 1 or 0 }
local marked, journaled, touched = {}, {}, {}
local admitted_units = 0
for i = 2, #ids do
  local id, buyer = ids[i], buyers[i]
  local quantity = tonumber(ARGV[FIRST + (i - 2) * STRIDE + 2])
  local mark = mark_of[id]
  local code, number
  if mark == 'v' then
    code, number = 3, 0
  elseif mark then
    local bound = tonumber(string.match(mark, '^%d+'))
    code, number = bound == quantity and 2 or 4, bound
  elseif shut_code then
    code, number = shut_code, shut_number
  elseif units_of[buyer] + quantity > limit then
    code, number = 5, math.max(limit - units_of[buyer], 0)
  elseif quantity > available then
    code, number = SHORT, available
  else
    code, number = 1, 0
    available = available - quantity
    admitted_units = admitted_units + quantity
    units_of[buyer] = units_of[buyer] + quantity
    touched[buyer] = true
    mark_of[id] = tostring(quantity)
    marked[#marked + 1] = id
    marked[#marked + 1] = mark_of[id]
    journaled[#journaled + 1] = id
    journaled[#journaled + 1] = quantity .. ':' .. buyer
  end
  if code >= 5 and late_copy_possible and (code ~= SHORT or last_word) then
    mark_of[id] = 'v'
    marked[#marked + 1] = id
    marked[#marked + 1] = 'v'
  end
  reply[#reply + 1] = code
  reply[#reply + 1] = number
end

-- From here on only writes, and none that can fail.
if #marked > 0 then
  redis.call('HSET', requests_key, unpack(marked))
end
if admitted_units > 0 then
  local owned = {}
  for buyer in pairs(touched) do
    owned[#owned + 1] = buyer
    owned[#owned + 1] = units_of[buyer]
  end
  redis.call('HSET', buyers_key, unpack(owned))
  redis.call('HINCRBY', meta_key, 'available', -admitted_units)
  redis.call('HINCRBY', meta_key, 'journaled', admitted_units)
  reply[3] = redis.call('XADD', journal_key, '*', unpack(journaled))
end
return reply
