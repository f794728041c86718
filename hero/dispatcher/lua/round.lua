-- One round of a worker: it records ended jobs and takes as many as it has room for.
-- ARGV[5] worker, [6] run, [7] how many to take, [8] how many run now, [9] seconds
-- that an ended job is kept (0: for ever), [10] how many results, then seven words
-- each: id, attempt, finished|error|release, may it be tried again (1|0), error, has it output
-- (1|0), output; then the ids that were moved to the taken list and wait to begin,
-- each after 'free' (its dependencies were looked at) or 'gate'.
local worker, run = ARGV[5], ARGV[6]
local room, running, keep, results = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local mine, stops = taken(worker, run), 'hero:stop_queue:' .. worker
local stopping = redis.call('LLEN', stops) > 0
local since = number(NOW)
local fates, begun, blocked = {}, {}, 0

local function kept(id)
  if keep > 0 then redis.call('EXPIRE', job(id), keep) end
end

local function record(id, attempt, how, retry, why, output)
  local fate = 'dropped'
  local h = redis.pcall('HMGET', job(id), 'status', 'worker_run', 'attempts', 'retries')
  if not h.err and h[2] == run and h[3] == attempt and plain_status(h[1]) == 'started' then
    if how == 'release' then
      redispatch(id)
      redis.call('HSET', job(id), 'attempts', number(tonumber(attempt) - 1))
      put_back(worker, id)
      fate = 'released'
    elseif how == 'error' then
      fate = again(id, worker, tonumber(attempt), retry == '1' and tonumber(h[4] or '0') or -1, why, output, push)
    else
      finish(id, how, output, why)
      fate = 'ended'
    end
    if fate == 'ended' then kept(id) end
  end
  redis.call('LREM', mine, 1, id)
  if stopping and fate == 'ended' then redis.call('LREM', stops, 0, id) end
  fates[#fates + 1] = fate
end

-- look reads what decides whether a job may begin; nil where it is no hash.
local function look(id)
  local h = redis.pcall('HMGET', job(id), 'status', 'worker_run', 'worker_id', 'concurrent', 'dependencies', 'prerequisites', 'attempts', 'id', 'script')
  if h.err then return nil end
  local there = false
  for i = 1, 9 do there = there or h[i] end
  if not there and redis.call('EXISTS', job(id)) == 0 then return nil end
  h.status = plain_status(h[1])
  local c = h[4] and string.lower(h[4])
  h.alone = not (c == 'true' or c == '1')
  return h
end

local function waits(list)
  if not list or list == '' or list == '[]' then return false end
  local l = string.gsub(list, '%s', '')
  return l ~= '' and l ~= '[]' and l ~= 'null'
end

-- may tells what to do with a job that is taken, or is to be taken.
local function may(h, gated)
  if not h then return 'gone' end
  if h.status == 'finished' or h.status == 'error' then return 'done' end
  if h.status == 'started' and h[2] and (h[2] == run or alive(h[3] or worker, h[2])) then return 'done' end
  if gated and (waits(h[5]) or waits(h[6])) then return 'gate' end
  if h.alone and running > 0 then return 'held' end
  return 'run'
end

-- begin acts on that, for a job that is in the taken list.
local function begin(id, h, word)
  if word == 'gone' or word == 'done' then
    redis.call('LREM', mine, 1, id)
  elseif word == 'run' then
    local flat = redis.call('HGETALL', job(id))
    local attempts = number((tonumber(h[7] or '0') or 0) + 1)
    redis.call('HSET', job(id), 'status', 'started', 'updated_at', AT, 'attempts', attempts, 'worker_run', run, 'started_at', since)
    if stopping and redis.call('LREM', stops, 0, id) > 0 then
      redis.call('LREM', mine, 1, id)
      finish(id, 'error', nil, 'stopped')
      kept(id)
      word = 'stopped'
    else
      begun[#begun + 1] = { word, id, flat, attempts }
      return
    end
  end
  begun[#begun + 1] = { word, id, word == 'gate' and redis.call('HGETALL', job(id)) or {} }
end

local i = 11
for _ = 1, results do
  record(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5] == '1' and ARGV[i + 6] or nil)
  i = i + 7
end
while i < #ARGV do
  local h = look(ARGV[i + 1])
  local word = may(h, ARGV[i] == 'gate')
  begin(ARGV[i + 1], h, word)
  if word == 'run' then
    running = running + 1
    if h.alone then blocked = 1 end
  elseif word == 'held' then
    blocked = 1
  end
  i = i + 2
end

-- First it is found out how many may be taken, then they are moved, and only then
-- they begin: a script that Redis ends in the middle leaves them in the taken list.
local queue, ids, plans = WORK .. worker, {}, {}
if room > 0 and blocked == 0 then
  if FROM == 'LEFT' then
    ids = redis.call('LRANGE', queue, 0, room - 1)
  else
    local tail = redis.call('LRANGE', queue, -room, -1)
    for n = #tail, 1, -1 do ids[#ids + 1] = tail[n] end
  end
end
local seen = {}
for n, id in ipairs(ids) do
  local h = look(id)
  local word = seen[id] and 'done' or may(h, true)
  if word == 'held' then
    blocked = 1
    break
  end
  plans[n] = { h, word }
  if word == 'run' then
    seen[id] = true
    running = running + 1
    if h.alone then
      blocked = 1
      break
    end
  end
end
if #plans > 0 then
  redis.call('LPUSH', mine, unpack(ids, 1, #plans))
  if FROM == 'LEFT' then redis.call('LTRIM', queue, #plans, -1) else redis.call('LTRIM', queue, 0, -#plans - 1) end
end
for n, plan in ipairs(plans) do begin(ids[n], plan[1], plan[2]) end
return { fates, begun, blocked, #plans }
