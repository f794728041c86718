-- ARGV[5...] ids that wait. What they waited for may have ended at a worker that
-- lets nobody go.
local released = 0
for i = 5, #ARGV do
  local id = ARGV[i]
  if status(id) ~= 'dispatched' then
    forget(id)
  elseif redis.call('SISMEMBER', 'hero:waiting', id) == 1 then
    local g = gate(id, redis.call('SMEMBERS', 'hero:waits:' .. id))
    if g[1] == 'ready' then
      push(redis.call('HGET', job(id), 'worker_id') or '', id)
      released = released + 1
    elseif g[1] == 'failed' then
      forget(id)
      finish(id, 'error', nil, g[2])
      released = released + 1
    end
  end
end
return released
