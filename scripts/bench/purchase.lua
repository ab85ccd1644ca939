-- Purchases for wrk: random buyers, a new idempotency key for each request.
--
--   wrk -t2 -c128 -d10s -s scripts/bench/purchase.lua http://127.0.0.1:8080 -- [name=value ...]
--
--   path=/v1/sales/1/purchases   what to send to; /v1/null/1/purchases is the ceiling to compare with
--   buyers=1000000               buyers to choose from
--   quantity=1                   units of each purchase
--   tokens=FILE                  one JWT a line (examples/tokens.rs makes them); without it buyers
--                                are named by X-Buyer-Id, for `serve --trust-buyer-header`
--   seed=N                       makes a run repeatable; keys are then those of the run before, so
--                                take a new sale with it. Without it: the clock.
--
-- Prints how many were answered and refused; GET /metrics says by which outcome.

local threads = 0

function setup(thread)
  thread:set("thread_number", threads)
  threads = threads + 1
end

local path, body, buyers, tokens, run
local count = 0

function init(args)
  local options = { path = "/v1/sales/1/purchases", buyers = 1000000, quantity = 1, seed = os.time() }
  for _, arg in ipairs(args) do
    local name, value = arg:match("^(%w+)=(.+)$")
    if not name then error("not name=value: " .. arg) end
    options[name] = value
  end
  path, buyers = options.path, tonumber(options.buyers)
  body = string.format('{"quantity":%d}', tonumber(options.quantity))
  -- Each thread has its own Lua state: without seeds of their own all would send the same.
  local seed = tonumber(options.seed) * 1000 + thread_number
  math.randomseed(seed)
  run = string.format("%x", seed)
  if options.tokens then
    tokens = {}
    for line in io.lines(options.tokens) do table.insert(tokens, line) end
  end
end

function request()
  count = count + 1
  local credentials
  if tokens then
    credentials = "Authorization: Bearer " .. tokens[math.random(#tokens)]
  else
    credentials = "X-Buyer-Id: buyer-" .. math.random(buyers)
  end
  -- Written by hand: wrk.format sorts a table for every request, and the client shares our cores.
  return table.concat({
    "POST ", path, " HTTP/1.1\r\nHost: bench\r\n", credentials,
    "\r\nIdempotency-Key: ", run, "-", count,
    "\r\nContent-Type: application/json\r\nContent-Length: ", #body, "\r\n\r\n", body,
  })
end

function done(summary)
  local seconds = summary.duration / 1e6
  local refused = summary.errors.status
  io.write(string.format("Answered per second: %.0f\n", summary.requests / seconds))
  -- Counted by wrk itself: a response() function here would cost a table for every answer.
  io.write(string.format("Of them refused (4xx, 5xx): %.0f\n", refused / seconds))
end
