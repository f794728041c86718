-- ARGV[5] id, [6...] what it waits for. Pushes a created job on its worker's
-- queue, or remembers what it waits for. A job that is there already stays once.
local id = ARGV[5]
local s = status(id)
if not s then return { 'missing', '' } end
if s ~= 'dispatched' then return { s, '' } end
local worker = redis.call('HGET', job(id), 'worker_id')
if not worker or worker == '' then return { 'nobody', '' } end
if redis.call('LPOS', WORK .. worker, id) then return { 'queued', '' } end
for _, m in ipairs(redis.call('ZRANGE', 'hero:workers', 0, -1)) do
  local w, run = string.match(m, '^(.*)/([^/]*)$')
  if w == worker and redis.call('LPOS', taken(w, run), id) then return { 'queued', '' } end
end
local deps = {}
for i = 6, #ARGV do deps[#deps + 1] = ARGV[i] end
local g = gate(id, deps)
if g[1] == 'ready' then push(worker, id) end
if g[1] == 'failed' then
  forget(id)
  finish(id, 'error', nil, g[2])
end
return g
