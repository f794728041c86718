package hero

// Priority orders the jobs of a queue. There are two: each further one would let jobs wait
// behind more others.
type Priority string

// The priorities. PriorityNormal is left out of hashes and messages.
const (
	PriorityNormal Priority = ""
	PriorityHigh   Priority = "high"
)

// ParsePriority reads a priority in any spelling.
func ParsePriority(s string) (Priority, error) {
	const usual Priority = "normal"
	p, err := word("priority", s, PriorityHigh, usual)
	if p == usual {
		p = PriorityNormal
	}
	return p, err
}

// priority reads the field. A value in a hash that is no priority is another program's, and
// means the usual one.
func (r *HashReader) priority(name string) Priority {
	p, _ := ParsePriority(r.h[name])
	return p
}

// QueueLua is a Lua function for Redis scripts: queue(list, key, of) pushes a key on the
// left of a list, whose consumers pop from the right. The job's hash is of .. key. A key of
// high priority is inserted further right, behind the high ones that are there.
//
// A worker that pops from the right, as the documents say, follows the priorities without
// knowing them. No job starves: high ones overtake the first job of normal priority ten
// times at most, counted in its hash, and at most ten go between it and the next one.
// If none of the 512 jobs at the right may be overtaken, the key is pushed on the left.
const QueueLua = `
local function queue(list, key, of)
  if redis.call('HGET', of .. key, 'priority') ~= 'high' then return redis.call('LPUSH', list, key) end
  local most, window = 10, 512
  local front = redis.call('LRANGE', list, -window, -1)
  local place, run, first = 0, 0, true
  for i = #front, 1, -1 do
    local h = redis.pcall('HMGET', of .. front[i], 'priority', 'edda_overtaken', 'id')
    if not h.err and h[1] == 'high' then
      run = run + 1
    else
      local overtaken = run
      if first and not h.err then overtaken = math.max(run, tonumber(h[2] or '0') or 0) end
      if overtaken < most then
        if first and not h.err and h[3] then redis.call('HSET', of .. front[i], 'edda_overtaken', string.format('%d', overtaken + 1)) end
        place = i
        break
      end
      run, first = 0, false
    end
  end
  if place == 0 then return redis.call('LPUSH', list, key) end
  local ahead = {}
  for i = #front, place + 1, -1 do ahead[#ahead + 1] = redis.call('RPOP', list) end
  redis.call('RPUSH', list, key)
  for i = #ahead, 1, -1 do redis.call('RPUSH', list, ahead[i]) end
  return redis.call('LLEN', list)
end
`
