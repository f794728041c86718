package redisdb

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
	"edda/internal/testkit"
)

// suite tests the promises of every kind of object. Its functions work on the object 5 of
// caller 12.
type suite struct {
	key    string
	put    func(ctx context.Context, name string) error // name goes into some text
	get    func(ctx context.Context) (name string, o hero.Object, err error)
	list   func(ctx context.Context) ([]hero.Object, error)
	delete func(ctx context.Context) error
	other  string // a key of another program that looks alike
}

func objects[T hero.Object](list []T, err error) ([]hero.Object, error) {
	var out []hero.Object
	for _, o := range list {
		out = append(out, o)
	}
	return out, err
}

func suites(d *DB, in uint32) map[string]suite {
	return map[string]suite{
		"actor": {
			"actor:5",
			func(ctx context.Context, name string) error { return d.PutActor(ctx, hero.Actor{ID: 5, PubKey: name}) },
			func(ctx context.Context) (string, hero.Object, error) {
				o, err := d.Actor(ctx, 5)
				return o.PubKey, o, err
			},
			func(ctx context.Context) ([]hero.Object, error) { return objects(d.Actors(ctx)) },
			func(ctx context.Context) error { return d.DeleteActor(ctx, 5) }, "actor:5:lock",
		},
		"flow": {
			"flow:5",
			func(ctx context.Context, name string) error {
				return d.PutFlow(ctx, hero.Flow{ID: 5, CallerID: 12, ContextID: in, EnvVars: map[string]string{"N": name}})
			},
			func(ctx context.Context) (string, hero.Object, error) {
				o, err := d.Flow(ctx, in, 5)
				return o.EnvVars["N"], o, err
			},
			func(ctx context.Context) ([]hero.Object, error) { return objects(d.Flows(ctx, in)) },
			func(ctx context.Context) error { return d.DeleteFlow(ctx, in, 5) }, "flow:stats",
		},
		"runner": {
			"runner:5",
			func(ctx context.Context, name string) error {
				return d.PutRunner(ctx, in, hero.Runner{ID: 5, PubKey: name})
			},
			func(ctx context.Context) (string, hero.Object, error) {
				o, err := d.Runner(ctx, in, 5)
				return o.PubKey, o, err
			},
			func(ctx context.Context) ([]hero.Object, error) { return objects(d.Runners(ctx, in)) },
			func(ctx context.Context) error { return d.DeleteRunner(ctx, in, 5) }, "runner:05",
		},
		"job": {
			"job:12:5",
			func(ctx context.Context, name string) error {
				return d.PutJob(ctx, hero.Job{ID: 5, CallerID: 12, ContextID: in, Script: name})
			},
			func(ctx context.Context) (string, hero.Object, error) {
				o, err := d.Job(ctx, in, 12, 5)
				return o.Script, o, err
			},
			func(ctx context.Context) ([]hero.Object, error) { return objects(d.Jobs(ctx, in)) },
			func(ctx context.Context) error { return d.DeleteJob(ctx, in, 12, 5) }, "job:5",
		},
		"message": {
			"message:12:5",
			func(ctx context.Context, name string) error {
				return d.PutMessage(ctx, in, hero.Message{ID: 5, CallerID: 12, Message: name})
			},
			func(ctx context.Context) (string, hero.Object, error) {
				o, err := d.Message(ctx, in, 12, 5)
				return o.Message, o, err
			},
			func(ctx context.Context) ([]hero.Object, error) { return objects(d.Messages(ctx, in)) },
			func(ctx context.Context) error { return d.DeleteMessage(ctx, in, 12, 5) }, "message:12:x",
		},
	}
}

// each runs a test for every kind, in a Redis without other actors.
func each(t *testing.T, test func(t *testing.T, s suite, c *redis.Client, d *DB)) {
	for name := range suites(nil, 0) {
		t.Run(name, func(t *testing.T) {
			d, in, c := fresh(t)
			if name == "actor" {
				c = raw(t, d, 0)
				t.Cleanup(func() {
					for _, key := range c.Keys(context.Background(), "actor:*").Val() {
						c.Del(context.Background(), key)
					}
				})
			}
			test(t, suites(d, in)[name], c, d)
		})
	}
}

func TestObjectsArePutReadListedAndDeleted(t *testing.T) {
	each(t, func(t *testing.T, s suite, c *redis.Client, d *DB) {
		ctx, now := t.Context(), time.Unix(1755600000, 0)
		d.now = func() time.Time { return now }
		_, _, err := s.get(ctx)
		is(t, err, ErrNotFound)
		is(t, err, edda.Permanent)
		is(t, s.delete(ctx), ErrNotFound)
		testkit.Must(t, s.put(ctx, "one"))
		if name, o, err := s.get(ctx); err != nil || name != "one" || o.Key() != s.key {
			t.Fatal(name, o, err)
		}
		now = now.Add(time.Hour)
		testkit.Must(t, c.HSet(ctx, s.key, "color", "red").Err())
		testkit.Must(t, s.put(ctx, "two"))
		h := hashOf(t, c, s.key)
		if h["created_at"] != "1755600000" || h["updated_at"] != "1755603600" || h["color"] != "red" {
			t.Fatalf("%v", h)
		}
		testkit.Must(t, c.HSet(ctx, s.other, "id", "5").Err())
		if all, err := s.list(ctx); err != nil || len(all) != 1 || all[0].Key() != s.key {
			t.Fatal(all, err)
		}
		testkit.Must(t, s.delete(ctx))
		if all, err := s.list(ctx); err != nil || len(all) != 0 {
			t.Fatal(all, err)
		}
		if c.Exists(ctx, s.other).Val() != 1 {
			t.Error("another program's hash is gone")
		}
	})
}

func TestAForeignHashIsLeftAsItIs(t *testing.T) {
	tests := map[string]map[string]string{
		"another program's": {"name": "stats"},
		"another id":        {"id": "6", "caller_id": "12"},
		"broken":            {"id": "5", "caller_id": "12", "created_at": "yesterday"},
	}
	for name, hash := range tests {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s suite, c *redis.Client, _ *DB) {
				ctx := t.Context()
				testkit.Must(t, c.HSet(ctx, s.key, hash).Err())
				for _, err := range []error{s.put(ctx, "x"), s.delete(ctx), second(s.get(ctx)), second(s.list(ctx))} {
					var field *hero.FieldError
					if !errors.As(err, &field) || field.Key != s.key || !errors.Is(err, edda.Permanent) {
						t.Errorf("error %v", err)
					}
				}
				if diff := cmp.Diff(hash, hashOf(t, c, s.key)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
	t.Run("no hash", func(t *testing.T) {
		each(t, func(t *testing.T, s suite, c *redis.Client, _ *DB) {
			ctx := t.Context()
			testkit.Must(t, c.Set(ctx, s.key, "a text", 0).Err())
			for _, err := range []error{s.put(ctx, "x"), s.delete(ctx), second(s.get(ctx))} {
				var storage *StorageError
				if !errors.As(err, &storage) || !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), s.key) {
					t.Errorf("error %v", err)
				}
			}
			if c.Get(ctx, s.key).Val() != "a text" {
				t.Error("overwritten")
			}
		})
	})
}

// second returns the error of a function's results.
func second(returned ...any) error {
	for _, r := range returned {
		if err, ok := r.(error); ok {
			return err
		}
	}
	return nil
}

func TestAListShowsWhatCanBeReadBesideABrokenOne(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	for id := uint32(700); id > 0; id-- {
		testkit.Must(t, d.PutRunner(ctx, in, hero.Runner{ID: id}))
	}
	testkit.Must(t, c.HSet(ctx, "runner:300", "local", "maybe").Err())
	testkit.Must(t, c.HSet(ctx, "runner:301", "id", "7").Err())
	all, err := d.Runners(ctx, in)
	if len(all) != 698 || all[0].ID != 1 || all[697].ID != 700 {
		t.Errorf("%d runners", len(all))
	}
	if err == nil || !strings.Contains(err.Error(), "runner:300") || !strings.Contains(err.Error(), "runner:301") {
		t.Error(err)
	}
}

func TestJobsAreInOrderOfCallerAndId(t *testing.T) {
	d, in, _ := fresh(t)
	ctx := t.Context()
	for _, ids := range [][2]uint32{{10, 1}, {2, 30}, {2, 4}, {10, 0}} {
		testkit.Must(t, d.PutJob(ctx, hero.Job{CallerID: ids[0], ID: ids[1], ContextID: in}))
	}
	all, err := d.Jobs(ctx, in)
	testkit.Must(t, err)
	var got []string
	for _, j := range all {
		got = append(got, j.Key())
	}
	if diff := cmp.Diff([]string{"job:2:4", "job:2:30", "job:10:0", "job:10:1"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFieldsThatAnObjectLeavesOutAreRemoved(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	testkit.Must(t, d.PutRunner(ctx, in, hero.Runner{ID: 5, Secret: "s3cret"}))
	if hashOf(t, c, "runner:5")["secret"] != "s3cret" {
		t.Fatal("no secret")
	}
	testkit.Must(t, d.PutRunner(ctx, in, hero.Runner{ID: 5}))
	if s, there := hashOf(t, c, "runner:5")["secret"]; there {
		t.Errorf("the secret is %q", s)
	}
}

func TestHashesOfOtherProgramsAreReadLiberally(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	testkit.Must(t, c.HSet(ctx, "job:12:5", "id", "5", "caller_id", "12", "script", "42", "script_type", "Python", "status", "WaitingForPrerequisites", "dependends", "1,2").Err())
	want := hero.Job{ID: 5, CallerID: 12, ContextID: in, Script: "42", ScriptType: hero.ScriptPython, Status: hero.JobWaiting, Dependends: []uint32{1, 2}}
	got, err := d.Job(ctx, in, 12, 5)
	testkit.Must(t, err)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if _, moved, err := d.MoveJob(ctx, in, 12, 5, hero.JobStarted, nil); err != nil || !moved {
		t.Fatal(moved, err)
	}
	h := hashOf(t, c, "job:12:5")
	maps.DeleteFunc(h, func(name, _ string) bool { return name == stepField || name == "updated_at" })
	wantHash := map[string]string{"id": "5", "caller_id": "12", "script": "42", "script_type": "Python", "status": "started", "dependends": "1,2", "result": "{}"}
	if diff := cmp.Diff(wantHash, h); diff != "" {
		t.Error("a step changed more than it says:", diff)
	}
}

func TestAFlowOfAnotherContextIsRefused(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	testkit.Must(t, c.HSet(ctx, "flow:5", "id", 5, "caller_id", 12, "context_id", in+1).Err())
	var field *hero.FieldError
	if _, err := d.Flow(ctx, in, 5); !errors.As(err, &field) || field.Field != "context_id" {
		t.Error(err)
	}
}

func TestTwoPutsAtOnce(t *testing.T) {
	d, in, c := fresh(t)
	done := make(chan error)
	for n := range 20 {
		go func() {
			done <- d.PutFlow(t.Context(), hero.Flow{ID: 5, CallerID: 12, ContextID: in, EnvVars: map[string]string{"N": strings.Repeat("x", n)}})
		}()
	}
	for range 20 {
		testkit.Must(t, <-done)
	}
	if _, err := hero.ReadFlow("flow:5", hashOf(t, c, "flow:5")); err != nil {
		t.Error(err)
	}
}
