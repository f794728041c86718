-- ARGV[5] id, [6...] what it waits for. A person wants the job run again: one
-- that failed, whose worker is gone, or that is in no queue. Its attempts count anew.
local id = ARGV[5]
local s = status(id)
if not s then return { 'missing', '' } end
if s == 'finished' then return { s, '' } end
local h = redis.call('HMGET', job(id), 'worker_id', 'worker_run')
local worker, run = h[1] or '', h[2]
if worker == '' then return { 'nobody', '' } end
if s == 'started' and run and alive(worker, run) then return { 'running', worker } end
if s == 'dispatched' then
  if redis.call('LPOS', WORK .. worker, id) then return { 'queued', '' } end
  for _, m in ipairs(redis.call('ZRANGE', 'hero:workers', 0, -1)) do
    local w, r = string.match(m, '^(.*)/([^/]*)$')
    if w == worker and redis.call('LPOS', taken(w, r), id) then return { 'queued', '' } end
  end
end
local deps = {}
for i = 6, #ARGV do deps[#deps + 1] = ARGV[i] end
local g = gate(id, deps)
if g[1] == 'failed' then return g end
redispatch(id)
redis.call('HDEL', job(id), 'output', 'error', 'attempts')
redis.call('DEL', REPLY .. id)
redis.call('LREM', 'hero:stop_queue:' .. worker, 0, id)
if run then redis.call('LREM', taken(worker, run), 0, id) end
redis.call('ZREM', 'hero:seen', id)
if g[1] == 'ready' and not redis.call('LPOS', WORK .. worker, id) then push(worker, id) end
return g
