-- ARGV[5] worker, [6] run, [7] id, [8] '' or why it can never run, [9...] what it
-- waits for. A worker took a job that waits for others.
local worker, run, id, never = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local deps = {}
for i = 9, #ARGV do deps[#deps + 1] = ARGV[i] end
local s = status(id)
if s ~= 'dispatched' and s ~= 'started' then
  redis.call('LREM', taken(worker, run), 1, id)
  return 'done'
end
if s == 'started' then redispatch(id) end
local g = never ~= '' and { 'failed', never } or gate(id, deps)
if g[1] == 'ready' then return 'ready' end
redis.call('LREM', taken(worker, run), 1, id)
if g[1] == 'failed' then
  forget(id)
  finish(id, 'error', nil, g[2])
end
return g[1]
