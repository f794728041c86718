package dispatcher

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

//go:embed lua/lib.lua
var library string

//go:embed lua/create.lua
var createText string

//go:embed lua/submit.lua
var submitText string

//go:embed lua/stop.lua
var stopText string

//go:embed lua/requeue.lua
var requeueText string

//go:embed lua/round.lua
var roundText string

//go:embed lua/park.lua
var parkText string

//go:embed lua/beat.lua
var beatText string

//go:embed lua/astray.lua
var astrayText string

//go:embed lua/recover.lua
var recoverText string

//go:embed lua/stale.lua
var staleText string

//go:embed lua/release.lua
var releaseText string

// scripts are the steps that decide. Each is one Lua script, so that no other client
// sees half a step. They make up keys as they go: a Redis cluster is refused
// by itself, with its own words.
type scripts struct {
	create, submit, stop, requeue, round, park, beat, astray, recover, stale, release *redis.Script
}

func newScripts() scripts {
	s := func(text string) *redis.Script { return redis.NewScript(hero.QueueLua + library + text) }
	return scripts{
		create: redis.NewScript(hero.QueueLua + createText), submit: s(submitText), stop: s(stopText), requeue: s(requeueText), round: s(roundText), park: s(parkText),
		beat: s(beatText), astray: s(astrayText), recover: s(recoverText), stale: s(staleText), release: s(releaseText),
	}
}

// conn is what client, worker and sweep share: the connection, how queues are
// named and in which order jobs are taken.
type conn struct {
	db      *redis.Client
	scheme  Scheme
	order   Order
	scripts scripts
}

func newConn(db *redis.Client, scheme Scheme, order Order) (conn, error) {
	s, err := scheme.validate()
	if err != nil {
		return conn{}, err
	}
	o, err := order.validate()
	if err != nil {
		return conn{}, err
	}
	return conn{db, s, o, newScripts()}, nil
}

// run runs a script with what all of them begin with.
func (l conn) run(ctx context.Context, s *redis.Script, args ...any) *redis.Cmd {
	from := "RIGHT"
	if l.order == LIFO {
		from = "LEFT"
	}
	all := append([]any{l.scheme.work(), l.scheme.reply(), stamp(time.Now()), from}, args...)
	return s.Run(ctx, l.db, nil, all...)
}

// trouble says what Redis said, what to do, and whether to try again.
func trouble(doing string, err error) error {
	if err == nil || errors.Is(err, edda.Temporary) || errors.Is(err, edda.Permanent) {
		return err
	}
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return edda.Classify(edda.Permanent, "%s: another program keeps something else under that key: %w", doing, err)
	}
	if advice := advice(err); advice != "" {
		return edda.Classify(edda.Temporary, "%s: %w: %s", doing, err, advice)
	}
	return edda.Classify(edda.Temporary, "%s: %w", doing, err)
}

func advice(err error) string {
	var network net.Error
	for says, advice := range map[string]string{
		"NOAUTH": "give user and password in the Redis URL", "WRONGPASS": "give the right user and password in the Redis URL",
		"NOPERM":   "the Redis user lacks a right: see Redis permissions in docs/HERO.md",
		"READONLY": "this Redis is a read-only replica: name its primary", "LOADING": "Redis reads its data from disk and answers when it has done so",
		"OOM": "Redis has no memory left: raise its maxmemory, or remove jobs", "CROSSSLOT": "this is a Redis cluster, which cannot hold one protocol's keys together",
	} {
		if redis.HasErrorPrefix(err, says) {
			return advice
		}
	}
	if errors.As(err, &network) {
		return "is Redis running, and is this its address?"
	}
	return ""
}

// texts reads the answer of a script that is a list of strings.
func texts(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, x := range list {
		out = append(out, fmt.Sprint(x))
	}
	return out
}

// flat reads a hash as a script returns it.
func flat(v any) map[string]string {
	list, _ := v.([]any)
	out := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		out[name], _ = list[i+1].(string)
	}
	return out
}
