package redisdb

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// role opens a DB as a user with exactly the documented rights of a role, and the raw client of
// an administrator.
func role(t *testing.T, name, lacks string) (d *DB, admin *redis.Client) {
	t.Helper()
	rule, err := realservers.RedisRights(name, "pw")
	testkit.Must(t, err)
	s := real(t, realservers.RedisOptions{Users: []string{rule + lacks}})
	d = open(t, Options{URL: "redis://edda-" + name + ":pw@" + s.Address()})
	return d, raw(t, open(t, Options{Addr: s.Address()}), 0)
}

// coordinator makes the calls of a coordinator.
func coordinator(ctx context.Context, d *DB) error {
	f := hero.Flow{ID: 33, CallerID: 12, ContextID: 7, Jobs: []uint32{1}, Nodes: []hero.FlowNode{{ID: 1}}}
	j := hero.Job{ID: 1, CallerID: 12, ContextID: 7, Executor: "python"}
	errs := []error{
		d.Ping(ctx), d.PutActor(ctx, hero.Actor{ID: 12}), d.PutContext(ctx, hero.Context{ID: 7}), d.PutRunner(ctx, 7, hero.Runner{ID: 20}),
		d.PutFlow(ctx, f), d.PutJob(ctx, j), second(d.Contexts(ctx)), second(d.Actors(ctx)), second(d.Flows(ctx, 7)), second(d.Messages(ctx, 7)),
	}
	f.Nodes, j.Executor = nil, "" // removes fields
	errs = append(errs, d.PutFlow(ctx, f), d.PutJob(ctx, j), d.MoveFlow(ctx, 7, 33, hero.FlowStarted, nil),
		second(d.FlowEnv(ctx, 7, 33)), second(d.DispatchJob(ctx, 7, 12, 1, Dispatch{FlowID: 33, Attempt: 1})), third(d.Send(ctx, 7, "command", chat("x"))), third(d.Send(ctx, 7, "command", chat("x"))),
		third(d.MoveJob(ctx, 7, 12, 1, hero.JobFinished, nil)), d.DeleteJob(ctx, 7, 12, 1), d.DeleteFlow(ctx, 7, 33), d.DeleteRunner(ctx, 7, 20), d.DeleteContext(ctx, 7), d.DeleteActor(ctx, 12))
	return errors.Join(errs...)
}

func TestACoordinatorNeedsItsRightsAndNoMore(t *testing.T) {
	t.Parallel()
	d, admin := role(t, "coordinator", "")
	testkit.Must(t, coordinator(t.Context(), d))
	if denied := admin.Do(t.Context(), "acl", "log").Val().([]any); len(denied) != 0 {
		t.Errorf("denied: %v", denied)
	}
	rule, err := realservers.RedisRights("coordinator", "pw")
	testkit.Must(t, err)
	for word := range strings.FieldsSeq(rule) {
		if right, ok := strings.CutPrefix(word, "+"); ok {
			less(t, admin, d, "-"+right)
		}
		if strings.HasPrefix(word, "~") {
			less(t, admin, d, "resetkeys "+strings.Replace(keysOf(rule), word+" ", "", 1))
		}
	}
}

// less removes a right, and checks that the role needs it.
func less(t *testing.T, admin *redis.Client, d *DB, change string) {
	t.Helper()
	rule, err := realservers.RedisRights("coordinator", "pw")
	testkit.Must(t, err)
	set := func(words string) {
		args := []any{"acl", "setuser"}
		for word := range strings.FieldsSeq(words) {
			args = append(args, word)
		}
		testkit.Must(t, admin.Do(t.Context(), args...).Err())
	}
	testkit.Must(t, admin.FlushAll(t.Context()).Err())
	testkit.Must(t, admin.ScriptFlush(t.Context()).Err())
	set("edda-coordinator " + change)
	testkit.Must(t, admin.Do(t.Context(), "acl", "log", "reset").Err())
	_ = coordinator(t.Context(), d)
	if denied := admin.Do(t.Context(), "acl", "log").Val().([]any); len(denied) == 0 {
		t.Errorf("nobody misses it: %s", change)
	}
	set(strings.Replace(rule, "edda-coordinator ", "edda-coordinator reset ", 1))
}

func keysOf(rule string) string {
	var keys strings.Builder
	for word := range strings.FieldsSeq(rule) {
		if strings.HasPrefix(word, "~") {
			keys.WriteString(word + " ")
		}
	}
	return keys.String()
}

func TestARoleMayNotDoWhatIsNotItsWork(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"coordinator", "router", "supervisor", "runner", "dispatcher-client", "dispatcher-worker"} {
		d, _ := role(t, name, "")
		ctx, c := t.Context(), raw(t, d, 7)
		for command, err := range map[string]error{
			"FLUSHALL": c.FlushAll(ctx).Err(), "CONFIG": c.ConfigGet(ctx, "*").Err(), "KEYS": c.Keys(ctx, "*").Err(), "SHUTDOWN": c.Do(ctx, "shutdown").Err(),
			"SCRIPT FLUSH": c.ScriptFlush(ctx).Err(), "MONITOR": c.Do(ctx, "monitor").Err(), "ACL": c.Do(ctx, "acl", "list").Err(),
			"REPLICAOF": c.Do(ctx, "replicaof", "no", "one").Err(), "SET other": c.Set(ctx, "other", "x", 0).Err(), "HSET of an actor": c.HSet(ctx, "actor:12", "id", "12").Err(),
			"EVAL": c.Eval(ctx, "return redis.call('SET', 'other', 'x')", nil).Err(),
		} {
			if name == "coordinator" && command == "HSET of an actor" {
				continue // that is its work
			}
			if err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "can't") {
				t.Errorf("%s: %s: %v", name, command, err)
			}
		}
	}
}

func TestAMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	d, _ := role(t, "runner", " -blmove")
	_, err := d.Take(t.Context(), 7, queue, into, time.Second)
	is(t, err, edda.Temporary)
	if !strings.Contains(err.Error(), "docs/HERO.md") || !strings.Contains(err.Error(), "blmove") {
		t.Error(err)
	}
}

// TestTheSettingsOfTheDocsAreThoseOfRedis: a Redis starts with the lines of docs/HERO.md, and has them.
func TestTheSettingsOfTheDocsAreThoseOfRedis(t *testing.T) {
	page, err := os.ReadFile("../../docs/HERO.md")
	testkit.Must(t, err)
	_, text, _ := strings.Cut(string(page), "```text redis.conf\n")
	text, _, _ = strings.Cut(text, "```")
	want := map[string]string{}
	var options []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[name] = value
		options = append(options, "--"+name, value)
	}
	if len(want) != 4 {
		t.Fatalf("docs/HERO.md has the settings %v", want)
	}
	admin := raw(t, open(t, Options{Addr: real(t, realservers.RedisOptions{More: options}).Address()}), 0)
	for name, value := range want {
		if got := admin.ConfigGet(t.Context(), name).Val()[name]; got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}
