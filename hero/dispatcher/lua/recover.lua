-- ARGV[5] worker, [6] run, [7] how many at most. What a dead worker had taken goes
-- back where it came from, the oldest to be taken first, or ends where no retry is left.
local worker, run, most = ARGV[5], ARGV[6], tonumber(ARGV[7])
local requeued, failed = {}, {}
if alive(worker, run) then return { requeued, failed, 0 } end
for _ = 1, most do
  local id = redis.call('LPOP', taken(worker, run))
  if not id then break end
  if is_hash(job(id)) then
    local h = redis.call('HMGET', job(id), 'status', 'worker_run', 'attempts', 'retries')
    local s = plain_status(h[1])
    if s == 'dispatched' then
      put_back(worker, id)
      requeued[#requeued + 1] = id
    elseif s == 'started' and h[2] == run then
      local fate = again(id, worker, tonumber(h[3] or '1') or 1, tonumber(h[4] or '0') or 0, 'worker lost', nil, put_back)
      if fate == 'retried' then requeued[#requeued + 1] = id else failed[#failed + 1] = id end
    end
  end
end
local left = redis.call('LLEN', taken(worker, run))
if left == 0 then redis.call('ZREM', 'hero:workers', worker .. '/' .. run) end
return { requeued, failed, left }
