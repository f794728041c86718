package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/hero"
)

// What looking for job messages in msg_in takes.
const (
	// window bounds how many keys one look reads, so that Redis is not held up by
	// a msg_in that nobody pops; the next look goes on behind it.
	window = 256
	// inboundEvery is how often msg_in is looked at: nothing else tells that
	// another program pushed there.
	// A msg_in where nothing is found is looked at half as often, to inboundAtMost.
	inboundEvery, inboundAtMost = 100 * time.Millisecond, time.Second
)

// takeJobScript moves the oldest job message of a window of a list into another
// list, and leaves chat, mail and results for the actors who pop them. A window
// begins so many keys before the list's end. It answers {length of the list, key}.
var takeJobScript = redis.NewScript(`
local behind, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local length = redis.call('LLEN', KEYS[1])
if length <= behind then return {length} end
local keys = redis.call('LRANGE', KEYS[1], -(behind + count), -(behind + 1))
for i = #keys, 1, -1 do
  local key = keys[i]
  if string.match(key, '^message:%d+:%d+$') and redis.call('TYPE', key).ok == 'hash' then
    local kind = string.lower(redis.call('HGET', key, 'message_type') or 'job')
    if not (string.find(kind, 'chat') or string.find(kind, 'mail') or string.find(kind, 'result')) then
      redis.call('LREM', KEYS[1], -1, key)
      redis.call('LPUSH', KEYS[2], key)
      return {length, key}
    end
  end
end
return {length}`)

// inbound makes jobs of the job messages that arrive in this context.
func (l *line) inbound(ctx context.Context) {
	l.resume(ctx, msgInCoordinator, true)
	lists := []string{hero.MsgIn, fmt.Sprintf("%s:%d", hero.MsgIn, l.context)}
	var p pause
	every := inboundEvery
	for l.slot(ctx) {
		key, err := l.takeJob(ctx, lists)
		if err == nil && key != "" {
			p, every = 0, inboundEvery
			l.begin(ctx, journey{key, msgInCoordinator, true})
			continue
		}
		<-l.slots
		if err != nil {
			l.rest(ctx, &p, "look into msg_in", err)
			l.resume(ctx, msgInCoordinator, true) // a key may have been moved, and the answer lost
			continue
		}
		sleep(ctx, every)
		every = min(2*every, inboundAtMost)
	}
}

// takeJob looks through all of the lists for one job message.
func (l *line) takeJob(ctx context.Context, lists []string) (string, error) {
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return "", err
	}
	for _, list := range lists {
		for behind, length := int64(0), int64(1); behind < length; behind += window {
			answer, err := takeJobScript.Run(ctx, c, []string{list, msgInCoordinator}, behind, window).Slice()
			if err != nil {
				return "", fmt.Errorf("look through %s: %w", list, err)
			}
			n, ok := answer[0].(int64)
			if !ok {
				return "", errors.New("look through " + list + ": Redis answers no length")
			}
			length = n
			if len(answer) > 1 {
				key, _ := answer[1].(string)
				return key, nil
			}
		}
	}
	return "", nil
}
