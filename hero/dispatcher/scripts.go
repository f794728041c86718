package dispatcher

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

//go:embed lua
var lua embed.FS

// scripts are the steps that read and then write. Each is one Lua script, so that no other
// client sees half a step. They compose the names of keys, so a Redis Cluster refuses them.
type scripts struct {
	create, submit, stop, requeue, round, park, beat, astray, recover, stale, release *redis.Script
}

func newScripts() scripts {
	load := func(names ...string) *redis.Script {
		text := hero.QueueLua
		for _, name := range names {
			part, err := lua.ReadFile("lua/" + name + ".lua")
			if err != nil {
				panic(err) // it is embedded
			}
			text += string(part)
		}
		return redis.NewScript(text)
	}
	return scripts{
		create: load("create"), submit: load("lib", "submit"), stop: load("lib", "stop"), requeue: load("lib", "requeue"),
		round: load("lib", "round"), park: load("lib", "park"), beat: load("lib", "beat"), astray: load("lib", "astray"),
		recover: load("lib", "recover"), stale: load("lib", "stale"), release: load("lib", "release"),
	}
}

// conn is the connection of a client, worker or sweeper, with the names of the queues and
// the order of jobs.
type conn struct {
	db      *redis.Client
	scheme  Scheme
	order   Order
	scripts scripts
}

func newConn(db *redis.Client, scheme Scheme, order Order) (conn, error) {
	s, err := oneOf("queue scheme", scheme, Schemes())
	if err != nil {
		return conn{}, err
	}
	o, err := oneOf("queue order", order, Orders())
	if err != nil {
		return conn{}, err
	}
	return conn{db, s, o, newScripts()}, nil
}

// run runs a script with the arguments that all scripts begin with.
func (l conn) run(ctx context.Context, s *redis.Script, args ...any) *redis.Cmd {
	from := "RIGHT"
	if l.order == LIFO {
		from = "LEFT"
	}
	all := append([]any{l.scheme.work(), l.scheme.reply(), stamp(time.Now()), from}, args...)
	return s.Run(ctx, l.db, nil, all...)
}

// trouble adds to an error of Redis the operation, an advice and its class.
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

// with appends ids to the arguments of a script.
func with(ids []string, args ...any) []any {
	for _, id := range ids {
		args = append(args, id)
	}
	return args
}

// statuses reads the statuses of several jobs, each with its own error.
func (l conn) statuses(ctx context.Context, ids []string) []*redis.StringCmd {
	pipe := l.db.Pipeline()
	out := make([]*redis.StringCmd, len(ids))
	for i, id := range ids {
		out[i] = pipe.HGet(ctx, JobKey(id), "status")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	return out
}

// texts reads a list of strings in a script's answer.
func texts(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, x := range list {
		out = append(out, fmt.Sprint(x))
	}
	return out
}

// flat reads a hash in a script's answer.
func flat(v any) map[string]string {
	list, _ := v.([]any)
	out := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		out[name], _ = list[i+1].(string)
	}
	return out
}
