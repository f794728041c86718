-- ARGV[5] milliseconds of grace, [6...] ids of started jobs. Those whose worker is
-- gone or whose timeout passed are requeued within their retries, or ended.
local grace = tonumber(ARGV[5])
local requeued, failed = {}, {}
for i = 6, #ARGV do
  local id = ARGV[i]
  if status(id) == 'started' then
    local h = redis.call('HMGET', job(id), 'worker_id', 'worker_run', 'started_at', 'timeout', 'attempts', 'retries')
    local worker, run, since = h[1] or '', h[2], tonumber(h[3] or '')
    local attempts = tonumber(h[5] or '0') or 0
    if not run then
      -- a worker that says neither who it is nor since when: it counts from when it was seen
      redis.call('ZADD', 'hero:seen', 'NX', number(NOW), id)
      since = tonumber(redis.call('ZSCORE', 'hero:seen', id))
      attempts = attempts + 1
    end
    local timeout = tonumber(h[4] or '0') or 0
    local why
    if timeout > 0 and since and since + timeout * 1000 + grace < NOW then why = 'timeout' end
    if run and not alive(worker, run) then why = why or 'worker lost' end
    -- one that is in its queue was requeued by somebody else already
    if why and worker ~= '' and not redis.call('LPOS', WORK .. worker, id) then
      redis.call('HSET', job(id), 'attempts', number(attempts))
      redis.call('ZREM', 'hero:seen', id)
      if run then redis.call('LREM', taken(worker, run), 0, id) end
      local fate = again(id, worker, attempts, tonumber(h[6] or '0') or 0, why, nil, put_back)
      if fate == 'retried' then requeued[#requeued + 1] = id else failed[#failed + 1] = id end
    end
  else
    redis.call('ZREM', 'hero:seen', id)
  end
end
return { requeued, failed }
