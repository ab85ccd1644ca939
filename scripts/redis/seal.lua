#!lua flags=allow-oom
-- Ends a segment's epoch: from here on it admits nothing and takes nothing back.
--
-- Contract. Works on a segment of any Redis process, also one that came back from an older state: what
-- its journal holds was really admitted. Repeatable.
-- Runs also when Redis' memory is full (see the first line).
--
-- KEYS[1] meta     hash
-- KEYS[2] journal  stream
--
-- Returns { sealed, entries }
--   sealed   1 the segment is sealed · 0 it is not here, so it cannot admit anything either
--   entries  length of the journal that is left to adopt
--
-- Complexity: O(1).

local meta_key, journal_key = KEYS[1], KEYS[2]
local function is(key, kind)
  return redis.call('TYPE', key).ok == kind
end

-- A key of another type is no segment: it is lost like one that is not there.
local sealed = 0
if is(meta_key, 'hash') and redis.call('HEXISTS', meta_key, 'token') == 1 then
  redis.call('HSET', meta_key, 'sealed', '1')
  sealed = 1
end
return { sealed, is(journal_key, 'stream') and redis.call('XLEN', journal_key) or 0 }
