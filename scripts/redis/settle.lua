#!lua flags=allow-oom
-- Deletes journal entries whose purchases are all in the ledger.
--
-- Contract. An entry's units leave the figure `journaled` exactly when the entry goes, however often
-- and by however many instances this is called.
-- Runs also when Redis' memory is full (see the first line).
--
-- KEYS, two of each segment
--   meta     hash
--   journal  stream
-- ARGV of each segment, in the order of its keys: how many entries, then id and units of each
--
-- Returns how many entries this call deleted. Complexity: O(entries + segments).

local KEYS_EACH, STRIDE = 2, 2

-- Deletes the entries from ARGV[first] on; returns how many this call deleted.
local function settle(meta_key, journal_key, first, count)
  local deleted, units = 0, 0
  for i = first, first + (count - 1) * STRIDE, STRIDE do
    if redis.pcall('XDEL', journal_key, ARGV[i]) == 1 then
      deleted = deleted + 1
      units = units + tonumber(ARGV[i + 1])
    end
  end
  -- Without the check a late call would leave a meta hash behind for an epoch that is gone.
  if units > 0 and redis.call('EXISTS', meta_key) == 1 then
    redis.call('HINCRBY', meta_key, 'journaled', -units)
  end
  return deleted
end

local deleted, first = 0, 1
for i = 1, #KEYS, KEYS_EACH do
  local count = tonumber(ARGV[first])
  deleted = deleted + settle(KEYS[i], KEYS[i + 1], first + 1, count)
  first = first + 1 + count * STRIDE
end
return deleted
