package stream

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/stream/wire"
)

func TestStreamsAreCreatedAndAdopted(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		o := StreamOptions{SyncAlways: true}
		found, err := EnsureStreams(ctx, w.JS, o)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range found {
			if d.Created || d.Replicas != 1 || !d.Synced || d.Note != "" {
				t.Errorf("stream %d is %+v", i, d)
			}
		}
		s := w.Stream(ctx, wire.WorkflowCommands)
		cfg := s.CachedInfo().Config
		if cfg.MaxAge != 7*24*time.Hour || cfg.Duplicates != 30*time.Second || cfg.Storage != jetstream.FileStorage ||
			strings.Join(cfg.Subjects, " ") != "tenant.*.effect.*.* tenant.*.workflow.*.* tenant.*.command.*.*" {
			t.Errorf("WORKFLOW_COMMANDS is %+v", cfg)
		}
	})
}

func TestUnfitStreamsAreRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*jetstream.StreamConfig)
		says   []string
	}{
		"subjects":  {func(c *jetstream.StreamConfig) { c.Subjects = []string{"tenant.acme.aggregate.*.*"} }, []string{"subjects is [tenant.acme.aggregate.*.*]", "wanted is tenant.*.aggregate.*.*", "nats stream edit"}},
		"storage":   {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, []string{"storage is Memory", "back the stream up"}},
		"retention": {func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, []string{"retention is WorkQueue", "limits"}},
		"age":       {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, []string{"max age is 1h0m0s, wanted is for ever", "--max-age"}},
		"subject":   {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }, []string{"max messages per subject is 5"}},
		"acks":      {func(c *jetstream.StreamConfig) { c.NoAck = true }, []string{"no-ack"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				w.Recreate(ctx, wire.AggregateEvents, test.change)
				_, err := EnsureStreams(ctx, w.JS, StreamOptions{})
				testkit.WantError(t, err, edda.Permanent, append(test.says, wire.AggregateEvents)...)
			})
		})
	}
}

// TestStreamsBelowTheLeastReplicasAreRefused: the error has the command for each of them. A new
// stream is created with as many.
func TestStreamsBelowTheLeastReplicasAreRefused(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		says := []string{"has 1 of the 3 replicas"}
		for _, p := range plans() {
			says = append(says, "stream "+p.name+" has", "nats stream edit "+p.name+" --replicas=3")
		}
		_, err := EnsureStreams(ctx, w.JS, StreamOptions{Replicas: 3, MinReplicas: 3})
		testkit.WantError(t, err, edda.Permanent, says...)
		if _, err := EnsureStreams(ctx, w.JS, StreamOptions{MinReplicas: 1}); err != nil {
			t.Errorf("one replica is enough, and it says %v", err)
		}
		w.Must(w.JS.DeleteStream(ctx, wire.WorkflowEvents))
		_, err = EnsureStreams(ctx, w.JS, StreamOptions{MinReplicas: 3}) // the only server cannot
		testkit.WantError(t, err, edda.Permanent, "create stream "+wire.WorkflowEvents+" (3 replicas")
	})
}

func TestWiderStreamsAreAdoptedUnchanged(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.Recreate(ctx, wire.AggregateEvents, func(c *jetstream.StreamConfig) {
			c.Subjects, c.MaxMsgs = []string{"tenant.*.aggregate.>", "other"}, 1000
		})
		found, err := EnsureStreams(ctx, w.JS, StreamOptions{Replicas: 3})
		if err != nil {
			t.Fatal(err)
		}
		note := found[0].Note
		for _, word := range []string{"1 replicas instead of 3", "1000 messages", "power failure"} {
			if !strings.Contains(note, word) {
				t.Errorf("%q does not say %q", note, word)
			}
		}
		s, err := w.JS.Stream(ctx, wire.AggregateEvents)
		if err != nil || len(s.CachedInfo().Config.Subjects) != 2 {
			t.Errorf("the stream was changed: %v", err)
		}
	})
}

func TestAStreamWithOtherSubjectsIsRead(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.Recreate(ctx, wire.AggregateEvents, func(c *jetstream.StreamConfig) { c.Subjects = []string{"tenant.*.aggregate.>", "other"} })
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		if _, err := w.JS.Publish(ctx, "other", []byte("x")); err != nil {
			t.Fatal(err)
		}
		w.send("acme", "O1", 1)
		if events := fetch(ctx, t, src, 1); len(events) != 1 || events[0].Seq != 2 {
			t.Errorf("got %+v", events)
		}
	})
}

// TestAStreamOfAnEarlierVersionGetsTheSubjectOfEchoes: echoes had the subjects of results.
func TestAStreamOfAnEarlierVersionGetsTheSubjectOfEchoes(t *testing.T) {
	earlier := []string{"tenant.*.effect_result.*.*", "tenant.*.workflow_event.*.*"}
	const echoes = "tenant.*.effect_result.*.*.echo"
	for name, test := range map[string]struct {
		subjects []string // of another stream
		want     []string
		says     string
	}{
		"as it was made":      {nil, append(slices.Clone(earlier), echoes), ""},
		"another stream's is": {[]string{echoes}, earlier, "add it with"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				// The server looks for expired messages by a clock that is not the bubble's.
				w.Recreate(ctx, wire.WorkflowEvents, func(c *jetstream.StreamConfig) { c.Subjects, c.MaxAge = earlier, 0 })
				if test.subjects != nil {
					_, err := w.JS.CreateStream(ctx, jetstream.StreamConfig{Name: "MINE", Subjects: test.subjects})
					w.Must(err)
				}
				w.result("acme", "before")
				_, err := EnsureStreams(ctx, w.JS, StreamOptions{})
				if test.says == "" {
					w.Must(err)
				} else {
					testkit.WantError(t, err, edda.Permanent, wire.WorkflowEvents, echoes, test.says)
				}
				info, err := w.Stream(ctx, wire.WorkflowEvents).Info(ctx)
				if err != nil || !slices.Equal(info.Config.Subjects, test.want) || info.State.Msgs != 1 {
					t.Errorf("the stream is %+v, %v", info, err)
				}
			})
		})
	}
}

func TestOverlappingStreamsAreNamed(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.JS.DeleteStream(ctx, wire.WorkflowEvents); err != nil {
			t.Fatal(err)
		}
		other := jetstream.StreamConfig{Name: "MINE", Subjects: []string{"tenant.*.effect_result.>"}}
		if _, err := w.JS.CreateStream(ctx, other); err != nil {
			t.Fatal(err)
		}
		found, err := EnsureStreams(ctx, w.JS, StreamOptions{})
		testkit.WantError(t, err, edda.Permanent, wire.WorkflowEvents, "MINE", "tenant.*.effect_result.*.*")
		if len(found) != 2 {
			t.Errorf("the other streams are %+v", found)
		}
	})
}

func TestStreamSettings(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.JS.DeleteStream(ctx, wire.WorkflowEvents); err != nil {
			t.Fatal(err)
		}
		found, err := EnsureStreams(ctx, w.JS, StreamOptions{Age: map[string]time.Duration{wire.WorkflowEvents: 10 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		if d := found[2]; !d.Created || d.Age != 10*time.Second || d.Synced || d.Note == "" {
			t.Errorf("got %+v", d)
		}
	})
}
