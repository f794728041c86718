package hero

// Priority is which of the jobs of a queue is taken first. There are two: every further
// one would let jobs wait behind more of them.
type Priority string

// The priorities. The usual one is left out of hashes and messages.
const (
	PriorityNormal Priority = ""
	PriorityHigh   Priority = "high"
)

// ParsePriority reads a priority, however it is written.
func ParsePriority(s string) (Priority, error) {
	const usual Priority = "normal"
	p, err := word("priority", s, PriorityHigh, usual)
	if p == usual {
		p = PriorityNormal
	}
	return p, err
}

// priority reads the field. In a hash, a value that is none of ours is another program's,
// and says nothing here.
func (r *HashReader) priority() (p Priority, understood bool) {
	s := r.h["priority"]
	if unquote(s) == "" {
		return PriorityNormal, true
	}
	p, err := ParsePriority(s)
	return p, err == nil
}

// QueueLua is a Lua function for scripts of Redis: queue(list, key, of) puts a key at the
// end of a list that is taken from on its right; of stands before the key in the name of
// its job's hash. A job of high priority goes towards the right instead, behind those of
// high priority that are there.
//
// A worker that pops from the right, as the documents say, follows the priorities without
// knowing them. No job waits for ever: the first one of the usual priority is overtaken ten
// times at most, which is counted in its hash, and behind it at most ten go before the next.
// Where none of the 512 jobs that are next may be overtaken, the key goes to the end.
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
