package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/backoff"
)

const (
	// window bounds the keys that one script reads, so that a long list does not block
	// Redis.
	window = 256
	// inboundEvery is the interval between two looks at msg_in, because Redis does not
	// announce a push. While there are no jobs it grows to inboundAtMost.
	inboundEvery, inboundAtMost = 100 * time.Millisecond, time.Second
	// againEvery is the interval between two further looks at a window of old keys: a key
	// may be pushed before its hash is written, or twice.
	againEvery = 10 * time.Second
)

// takeLua is the common part of two scripts. take moves the key of a job message to the
// processing list, and leaves chat, mail and results to the actors, who pop them.
const takeLua = `
local function take(key)
  if string.match(key, '^message:%d+:%d+$') and redis.call('TYPE', key).ok == 'hash' then
    local kind = string.lower(redis.call('HGET', key, 'message_type') or 'job')
    if not (string.find(kind, 'chat') or string.find(kind, 'mail') or string.find(kind, 'result')) then
      redis.call('LREM', KEYS[1], -1, key)
      redis.call('LPUSH', KEYS[2], key)
      return true
    end
  end
  return false
end
`

// takeNewScript looks at the oldest keys that were pushed after the mark, a key. It answers
// {the key taken or ”, the next mark, the number of keys not looked at}. Only pushes change
// the head of the list, so if the mark is missing, it and all older keys were popped.
// KEYS: the list, the processing list. ARGV: the mark or ”, the maximum of keys.
var takeNewScript = redis.NewScript(takeLua + `
local new = redis.call('LLEN', KEYS[1])
if new == 0 then return {'', '', 0} end
if ARGV[1] ~= '' then new = redis.call('LPOS', KEYS[1], ARGV[1]) or new end
if new == 0 then return {'', ARGV[1], 0} end
local first = math.max(new - tonumber(ARGV[2]), 0)
local keys = redis.call('LRANGE', KEYS[1], first, new - 1)
for i = #keys, 1, -1 do
  if take(keys[i]) then return {keys[i], keys[i + 1] or ARGV[1], first + i - 1} end
end
return {'', keys[1], first}`)

// takeAgainScript looks at a window of the list, which begins ARGV[1] keys before its end.
// It answers {length of the list, the key taken}.
var takeAgainScript = redis.NewScript(takeLua + `
local behind, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local length = redis.call('LLEN', KEYS[1])
if length <= behind then return {length} end
local keys = redis.call('LRANGE', KEYS[1], -(behind + count), -(behind + 1))
for i = #keys, 1, -1 do
  if take(keys[i]) then return {length, keys[i]} end
end
return {length}`)

// inbox is a list in which job messages arrive, with the position of the next look.
type inbox struct {
	list   string
	mark   string    // the newest key that was looked at
	again  time.Time // of the next further look at a window
	behind int64     // the start of that window, from the end
}

// inbound makes jobs of the job messages that arrive in this context.
func (l *contextLoop) inbound(ctx context.Context) {
	boxes := []*inbox{{list: hero.MsgIn}, {list: fmt.Sprintf("%s:%d", hero.MsgIn, l.Context)}}
	looks := backoff.Exponential{First: inboundEvery, Most: inboundAtMost}
	c := l.consumer(ctx, hero.MsgIn, msgInCoordinator, true)
	c.Next = func(ctx context.Context) (string, error) {
		key, err := l.DB.TakeBy(ctx, l.Context, "look through msg_in", msgInCoordinator, func() (string, error) {
			for _, box := range boxes {
				key, err := box.take(ctx, l.Redis)
				if err != nil {
					return "", fmt.Errorf("look through %s: %w", box.list, err)
				}
				if key != "" {
					return key, nil
				}
			}
			return "", redisdb.ErrEmpty
		})
		if errors.Is(err, redisdb.ErrEmpty) {
			_ = backoff.Wait(ctx, looks.Next())
		} else {
			looks.Reset()
		}
		return key, err
	}
	c.Run(ctx, ctx)
}

// take looks at all new keys of the list for one job message; empty where there is none.
func (b *inbox) take(ctx context.Context, c *redis.Client) (string, error) {
	for left := int64(1); left > 0; {
		answer, err := takeNewScript.Run(ctx, c, []string{b.list, msgInCoordinator}, b.mark, window).Slice()
		if err != nil {
			return "", err
		}
		if len(answer) != 3 {
			return "", errors.New("redis answers no key, mark and number")
		}
		key, _ := answer[0].(string)
		b.mark, _ = answer[1].(string)
		left, _ = answer[2].(int64)
		if key != "" {
			return key, nil
		}
	}
	return b.takeAgain(ctx, c)
}

// takeAgain looks at the next window of old keys, every againEvery.
func (b *inbox) takeAgain(ctx context.Context, c *redis.Client) (string, error) {
	now := time.Now()
	if b.mark == "" || now.Before(b.again) {
		return "", nil
	}
	answer, err := takeAgainScript.Run(ctx, c, []string{b.list, msgInCoordinator}, b.behind, window).Slice()
	if err != nil {
		return "", err
	}
	b.again = now.Add(againEvery)
	length, _ := answer[0].(int64)
	if b.behind += window; b.behind >= length {
		b.behind = 0
	}
	if len(answer) > 1 {
		key, _ := answer[1].(string)
		return key, nil
	}
	return "", nil
}
