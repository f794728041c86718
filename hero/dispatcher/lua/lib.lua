-- What every script begins with. ARGV[1] and ARGV[2] are the prefixes of the
-- work and the reply queues; ARGV[3] is the caller's time, RFC 3339; ARGV[4] is
-- the end of a work queue that is taken from, RIGHT or LEFT.
local WORK, REPLY, AT, FROM = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local REPLY_KEPT = 3600 -- seconds
local LONGEST_ERROR = 2000

local t = redis.call('TIME')
local NOW = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)

local function job(id) return 'hero:job:' .. id end
local function taken(worker, run) return 'hero:taken:' .. worker .. ':' .. run end
local function number(n) return string.format('%.0f', n) end
local function is_hash(key) return redis.call('TYPE', key).ok == 'hash' end

-- status reads any spelling of a status, as the Go side does.
local function plain_status(s)
  s = string.lower(string.gsub(s or '', '["%s]', ''))
  if s == '' or s == 'waiting_for_prerequisites' or s == 'waitingforprerequisites' then return 'dispatched' end
  return s
end

local function status(id)
  if not is_hash(job(id)) then return nil end
  return plain_status(redis.call('HGET', job(id), 'status') or '')
end

-- Most of the time no job waits for others; then nobody is looked for.
local anybody_waits = redis.call('EXISTS', 'hero:waiting') == 1

-- alive tells whether a worker's process has said so lately.
local function alive(worker, run)
  local till = redis.call('ZSCORE', 'hero:workers', worker .. '/' .. run)
  return till and tonumber(till) > NOW
end

-- push_on queues as a client does, by the job's priority; where the newest is taken
-- first, that is what a high priority means. put_back puts where it is taken from next.
local function push_on(list, id)
  if FROM == 'LEFT' then redis.call('LPUSH', list, id) else queue(list, id, 'hero:job:') end
end
local function push(worker, id) push_on(WORK .. worker, id) end
local function put_back(worker, id)
  if redis.call('LPOS', WORK .. worker, id) then return end
  redis.call(FROM == 'LEFT' and 'LPUSH' or 'RPUSH', WORK .. worker, id)
end

-- queue_released queues a job that waited, where its own client or worker would: who
-- releases it may name queues otherwise. One that its client queued meanwhile stays once.
local function queue_released(id)
  local h = redis.call('HMGET', job(id), 'edda_work_queue', 'worker_id')
  local list = (h[1] or WORK) .. (h[2] or '')
  redis.call('HDEL', job(id), 'edda_work_queue')
  if not redis.call('LPOS', list, id) then push_on(list, id) end
end

-- redispatch makes a started job one that waits in its queue.
local function redispatch(id)
  redis.call('HSET', job(id), 'status', 'dispatched', 'updated_at', AT)
  redis.call('HDEL', job(id), 'worker_run', 'started_at')
end

-- forget removes a job from those that wait.
local function forget(id)
  for _, dep in ipairs(redis.call('SMEMBERS', 'hero:waits:' .. id)) do
    redis.call('SREM', 'hero:waiters:' .. dep, id)
  end
  redis.call('DEL', 'hero:waits:' .. id)
  return redis.call('SREM', 'hero:waiting', id) == 1
end

-- let_go lets the jobs that wait for one that ended go; those that it fails are
-- added to todo.
local function let_go(e, todo)
  for _, w in ipairs(redis.pcall('SMEMBERS', 'hero:waiters:' .. e[1])) do
    redis.call('SREM', 'hero:waits:' .. w, e[1])
    if e[2] == 'error' then
      if forget(w) and status(w) == 'dispatched' then
        todo[#todo + 1] = { w, 'error', nil, string.sub('dependency ' .. e[1] .. ' failed: ' .. e[4], 1, LONGEST_ERROR) }
      end
    elseif redis.call('SCARD', 'hero:waits:' .. w) == 0 and forget(w) and status(w) == 'dispatched' then
      queue_released(w)
    end
  end
  redis.call('DEL', 'hero:waiters:' .. e[1])
end

-- finish records how a job ended, answers who waits for it, and lets the jobs
-- that depend on it go, or fails them and those that depend on them in turn.
-- output is nil where there is none.
local function finish(id, how, output, why)
  local todo = { { id, how, output, why } }
  while #todo > 0 do
    local e = table.remove(todo)
    local key, reply = job(e[1]), REPLY .. e[1]
    if e[2] ~= 'error' then
      redis.call('HSET', key, 'status', e[2], 'output', e[3], 'updated_at', AT)
    elseif e[3] then
      redis.call('HSET', key, 'status', e[2], 'error', e[4], 'output', e[3], 'updated_at', AT)
    else
      redis.call('HSET', key, 'status', e[2], 'error', e[4], 'updated_at', AT)
    end
    -- a reply that cannot be pushed (a foreign key of that name) is no reason
    -- to lose the result: who waits watches the hash too
    redis.pcall('LPUSH', reply, e[2] == 'error' and e[4] or e[3])
    redis.pcall('EXPIRE', reply, REPLY_KEPT)
    if anybody_waits then let_go(e, todo) end
  end
end

-- again gives a started job another run if its retries allow one more than the
-- attempts that began, else ends it; it tells which.
local function again(id, worker, attempts, retries, why, output, place)
  if attempts <= retries then
    redispatch(id)
    place(worker, id)
    return 'retried'
  end
  finish(id, 'error', output, why)
  return 'ended'
end

-- gate looks at the jobs that a job waits for. Nothing is written unless they
-- keep it waiting: then it is remembered with those that are not finished.
local function gate(id, deps)
  local open = {}
  for _, dep in ipairs(deps) do
    local s = status(dep)
    if not s then return { 'failed', 'dependency ' .. dep .. ' not found' } end
    if s == 'error' then
      local why = redis.call('HGET', job(dep), 'error') or 'no reason given'
      return { 'failed', string.sub('dependency ' .. dep .. ' failed: ' .. why, 1, LONGEST_ERROR) }
    end
    if s ~= 'finished' then open[#open + 1] = dep end
  end
  forget(id)
  if #open == 0 then return { 'ready', '' } end
  for _, dep in ipairs(open) do
    redis.call('SADD', 'hero:waits:' .. id, dep)
    redis.call('SADD', 'hero:waiters:' .. dep, id)
  end
  redis.call('SADD', 'hero:waiting', id)
  if not redis.call('HGET', job(id), 'edda_work_queue') then redis.call('HSET', job(id), 'edda_work_queue', WORK) end
  anybody_waits = true
  return { 'waiting', '' }
end
