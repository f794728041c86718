-- ARGV[5] worker, [6] run, [7] milliseconds it counts as alive, 0 for farewell.
local worker, run, lasts = ARGV[5], ARGV[6], tonumber(ARGV[7])
if lasts > 0 then
  redis.call('ZADD', 'hero:workers', number(NOW + lasts), worker .. '/' .. run)
  redis.call('SET', 'hero:worker:' .. worker, run, 'PX', lasts)
  return
end
-- what it could not give back is left to the sweep, which finds it by its entry
if redis.call('LLEN', taken(worker, run)) > 0 then
  redis.call('ZADD', 'hero:workers', number(NOW), worker .. '/' .. run)
else
  redis.call('ZREM', 'hero:workers', worker .. '/' .. run)
end
if redis.call('GET', 'hero:worker:' .. worker) == run then redis.call('DEL', 'hero:worker:' .. worker) end
