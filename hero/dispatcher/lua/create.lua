-- ARGV[5] id, [6] '1' to push it, [7] worker, [8...] fields. It goes without what
-- the others begin with, as it comes most often. The same creation once more (an
-- answer was lost) changes nothing.
local id, key = ARGV[5], 'hero:job:' .. ARGV[5]
if redis.call('EXISTS', key) == 0 then
  redis.call('HSET', key, unpack(ARGV, 8))
  if ARGV[6] == '1' and ARGV[4] == 'LEFT' then redis.call('LPUSH', ARGV[1] .. ARGV[7], id) end
  if ARGV[6] == '1' and ARGV[4] ~= 'LEFT' then queue(ARGV[1] .. ARGV[7], id, 'hero:job:') end
  return 'created'
end
if redis.call('TYPE', key).ok ~= 'hash' then return 'exists' end
local mine = {}
for i = 8, #ARGV, 2 do mine[ARGV[i]] = ARGV[i + 1] end
local was = redis.call('HMGET', key, 'created_at', 'script', 'worker_id')
if was[1] == mine.created_at and was[2] == mine.script and was[3] == mine.worker_id then return 'created' end
return 'exists'
