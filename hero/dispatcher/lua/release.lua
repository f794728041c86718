-- ARGV[5...] ids that wait. What they waited for may have ended at a worker that
-- lets nobody go. A job for which nothing changed is only looked at.
local released = 0

local function unchanged(deps)
  for _, dep in ipairs(deps) do
    local s = status(dep)
    if not s or s == 'finished' or s == 'error' then return false end
  end
  return #deps > 0
end

for i = 5, #ARGV do
  local id = ARGV[i]
  if status(id) ~= 'dispatched' then
    forget(id)
  elseif redis.call('SISMEMBER', 'hero:waiting', id) == 1 then
    local deps = redis.call('SMEMBERS', 'hero:waits:' .. id)
    local g = unchanged(deps) and { 'waiting' } or gate(id, deps)
    if g[1] == 'ready' then
      queue_released(id)
      released = released + 1
    elseif g[1] == 'failed' then
      forget(id)
      finish(id, 'error', nil, g[2])
      released = released + 1
    end
  end
end
return released
