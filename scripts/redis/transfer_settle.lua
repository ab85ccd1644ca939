#!lua flags=allow-oom
-- Third step of a transfer, on the donor: the units have arrived and are no longer in transfer.
--
-- Contract. Call it only after receive.lua has answered 0. Repeatable. The transfer itself stays
-- remembered; only the note that it is open goes.
-- Runs also when Redis' memory is full (see the first line): it ends what has begun.
--
-- KEYS[1] meta  hash
-- ARGV[1] transfer id
--
-- Returns 1 closed now · 0 was closed before, or nothing is here. Complexity: O(1).

local meta_key, transfer = KEYS[1], ARGV[1]

local open = redis.call('HGET', meta_key, 'lent:' .. transfer)
if not open then
  return 0
end
redis.call('HDEL', meta_key, 'lent:' .. transfer)
redis.call('HINCRBY', meta_key, 'in_transfer', -tonumber(string.match(open, '%d+$')))
return 1
