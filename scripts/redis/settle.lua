#!lua flags=allow-oom
-- Deletes journal entries whose purchases are all in the ledger.
--
-- Contract. An entry's units leave the figure `journaled` exactly when the entry goes, however often
-- and by however many instances this is called.
-- Runs also when Redis' memory is full (see the first line).
--
-- KEYS[1] meta     hash
-- KEYS[2] journal  stream
-- ARGV    entry id, its units, entry id, its units, …
--
-- Returns how many entries this call deleted. Complexity: O(entries).

local meta_key, journal_key = KEYS[1], KEYS[2]
local deleted, units = 0, 0
for i = 1, #ARGV, 2 do
  if redis.call('XDEL', journal_key, ARGV[i]) == 1 then
    deleted = deleted + 1
    units = units + tonumber(ARGV[i + 1])
  end
end
-- Without the check a late call would leave a meta hash behind for an epoch that is gone.
if units > 0 and redis.call('EXISTS', meta_key) == 1 then
  redis.call('HINCRBY', meta_key, 'journaled', -units)
end
return deleted
