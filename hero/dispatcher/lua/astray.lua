-- ARGV[5] worker, [6] run, [7...] ids in the worker's taken list that it does not
-- know of: an answer was lost on the way. They go back, as if never begun.
local worker, run = ARGV[5], ARGV[6]
for i = 7, #ARGV do
  local id = ARGV[i]
  if redis.call('LREM', taken(worker, run), 1, id) == 1 and is_hash(job(id)) then
    local h = redis.call('HMGET', job(id), 'status', 'worker_run', 'attempts')
    local s = plain_status(h[1])
    if s == 'started' and h[2] == run then
      redispatch(id)
      redis.call('HSET', job(id), 'attempts', number((tonumber(h[3] or '1') or 1) - 1))
      put_back(worker, id)
    elseif s == 'dispatched' then
      put_back(worker, id)
    end
  end
end
