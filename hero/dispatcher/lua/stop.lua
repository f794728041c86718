-- ARGV[5] id. A job that waits for others ends here, as no worker knows of it;
-- for every other the worker is asked.
local id = ARGV[5]
local s = status(id)
if not s then return 'missing' end
if s == 'finished' or s == 'error' then return s end
if redis.call('SISMEMBER', 'hero:waiting', id) == 1 then
  forget(id)
  finish(id, 'error', nil, 'stopped')
  return 'stopped'
end
local worker = redis.call('HGET', job(id), 'worker_id') or ''
if worker == '' then return 'nobody' end
local stop = 'hero:stop_queue:' .. worker
if not redis.call('LPOS', stop, id) then redis.call('LPUSH', stop, id) end
return 'asked'
