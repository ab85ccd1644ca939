#!lua
-- Decides N purchases of S segments: all are answered, as many as fit are admitted.
--
-- Contract. Everything is read and decided first and written last, because Redis does not roll back a
-- script that fails half-way; the first line makes Redis refuse the whole script when its memory is full.
-- Deduction, buyers' units, request marks and journal entry change together or not at all. Running it
-- again with the same purchases admits nothing twice: it is safe to resend after a lost reply.
-- A segment that is not there is answered so, and the others are served. On a Redis Cluster all segments
-- of one call must lie in one slot.
--
-- KEYS, four of each segment, and no segment twice:
--   meta      hash    the segment's figures and switches
--   buyers    hash    buyer -> units in active orders
--   requests  hash    order id (16 bytes) -> mark: "<quantity>" admitted, "<quantity>r" its units
--                     came back, "v" refused for good under this key
--   journal   stream  one entry per call that admitted: order id -> "<quantity>:<buyer>", …
-- ARGV[1] "0", or "1" if a lost copy of these purchases may still arrive: refusals are then written down
--         as "v", so that the late copy cannot be admitted after the buyer was told no. But for lack of
--         stock, which other segments may have, only if this is the last word: "2"
-- ARGV[2] the latest Redis time, ms, at which this copy may still act; 0: none
-- ARGV[3…] of each segment, in the order of its keys: how many purchases, then order id, buyer and quantity
--         of each
--
-- Returns { now_ms } if this copy came too late: nothing was done. Else { now_ms, segment, segment, … } with
-- each segment { status, entry, sold_out, code, number, code, number, … }
--   status   0 decided · 1 not loaded here · 2 sealed by a newer epoch; the rest is there only with 0
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
-- Complexity: O(N + S), with at most ten Redis commands for each segment. Time is Redis' own: the clock of
-- the window.

local late_copy_possible, last_word = ARGV[1] ~= '0', ARGV[1] == '2'
local act_before_ms = tonumber(ARGV[2])
local FIRST, STRIDE, KEYS_EACH = 3, 3, 4
local SENTINEL, SHORT = '', 6

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if act_before_ms > 0 and now_ms > act_before_ms then
  return { now_ms }
end
local info = redis.call('INFO', 'server', 'replication')
local run_id_at, replid_at = info:find('run_id:', 1, true), info:find('replid:', 1, true)
local run_id = info:sub(run_id_at + 27, run_id_at + 46) .. info:sub(replid_at + 7, replid_at + 26)

-- What the segment holds of these purchases, or why nothing here may be believed: a hash that was evicted,
-- deleted or restored from elsewhere lacks the token of this load in this very process, and so does the error
-- of a key of another type.
local function read(keys, ids, buyers)
  local meta = redis.pcall('HMGET', keys.meta, 'token', 'sealed', 'closed', 'paused', 'opens_at_ms',
    'closes_at_ms', 'per_buyer_limit', 'available', 'sold_out', 'journaled')
  local marks = redis.pcall('HMGET', keys.requests, unpack(ids))
  local units = redis.pcall('HMGET', keys.buyers, unpack(buyers))
  local token = meta[1]
  if not token or token ~= run_id or marks[1] ~= token or units[1] ~= token
    or redis.call('TYPE', keys.journal).ok ~= 'stream' then
    return 1
  end
  if meta[2] then
    return 2
  end
  return 0, meta, marks, units
end

-- The code and number for purchases while the sale does not sell at all.
local function shut(meta)
  local opens_at_ms, closes_at_ms = tonumber(meta[5]), tonumber(meta[6])
  if meta[3] or (closes_at_ms and now_ms >= closes_at_ms) then
    return 9, 0
  elseif meta[4] then
    return 8, 0
  elseif not opens_at_ms or now_ms < opens_at_ms then
    return 7, opens_at_ms or -1
  end
end

-- Decides the purchases from ARGV[first] on; returns the answer, and what must be written for it.
local function decide(keys, first, count)
  local ids, buyers = { SENTINEL }, { SENTINEL }
  for i = first, first + (count - 1) * STRIDE, STRIDE do
    ids[#ids + 1] = ARGV[i]
    buyers[#buyers + 1] = ARGV[i + 1]
  end
  local status, meta, marks, units = read(keys, ids, buyers)
  if status ~= 0 then
    return { status }
  end
  local shut_code, shut_number = shut(meta)
  local limit, available, in_journal = tonumber(meta[7]), tonumber(meta[8]), tonumber(meta[10])
  if not (limit and available and in_journal) then
    return { 1 }
  end

  -- Two purchases of one buyer, or two copies of one purchase, may be in this batch: what the first one
  -- changed must be seen by the second.
  local mark_of, units_of = {}, {}
  for i = 2, #ids do
    mark_of[ids[i]] = marks[i] or nil
    units_of[buyers[i]] = tonumber(units[i] or 0)
  end

  local answer = { 0, '', meta[9] and 1 or 0 }
  local marked, journaled, touched = {}, {}, {}
  local admitted_units = 0
  for i = 2, #ids do
    local id, buyer = ids[i], buyers[i]
    local wanted = ARGV[first + (i - 2) * STRIDE + 2]
    local quantity = tonumber(wanted)
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
      mark_of[id] = wanted
      marked[#marked + 1] = id
      marked[#marked + 1] = mark_of[id]
      journaled[#journaled + 1] = id
      journaled[#journaled + 1] = wanted .. ':' .. buyer
    end
    if code >= 5 and late_copy_possible and (code ~= SHORT or last_word) then
      mark_of[id] = 'v'
      marked[#marked + 1] = id
      marked[#marked + 1] = 'v'
    end
    answer[#answer + 1] = code
    answer[#answer + 1] = number
  end
  local owned = {}
  for buyer in pairs(touched) do
    owned[#owned + 1] = buyer
    owned[#owned + 1] = string.format('%d', units_of[buyer])
  end
  local changed = { 'available', string.format('%d', available),
    'journaled', string.format('%d', in_journal + admitted_units) }
  return answer, { marked = marked, owned = owned, changed = changed, journaled = journaled }
end

local answers, writes = { now_ms }, {}
local first = FIRST
for i = 1, #KEYS, KEYS_EACH do
  local keys = { meta = KEYS[i], buyers = KEYS[i + 1], requests = KEYS[i + 2], journal = KEYS[i + 3] }
  local count = tonumber(ARGV[first])
  local answer, write = decide(keys, first + 1, count)
  answers[#answers + 1] = answer
  if write then
    writes[#writes + 1] = { keys = keys, number = #answers, to = write }
  end
  first = first + 1 + count * STRIDE
end

-- From here on only writes. The only one that can fail is the entry in a journal whose ids somebody has driven
-- to their end; it comes first, and without it nothing of the segment is written. Numbers are text: Redis would
-- print them as floating point, which takes longer.
for _, write in ipairs(writes) do
  local keys, to = write.keys, write.to
  local entry = ''
  if #to.journaled > 0 then
    entry = redis.pcall('XADD', keys.journal, '*', unpack(to.journaled))
  end
  if type(entry) == 'table' then
    answers[write.number] = { 1 }
  else
    answers[write.number][2] = entry
    if #to.marked > 0 then
      redis.call('HSET', keys.requests, unpack(to.marked))
    end
    if #to.journaled > 0 then
      redis.call('HSET', keys.buyers, unpack(to.owned))
      redis.call('HSET', keys.meta, unpack(to.changed))
    end
  end
end
return answers
