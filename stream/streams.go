package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/kv"
	"edda/stream/wire"
)

const (
	// defaultAge is how long commands and results are kept. The relay publishes a waiting command
	// again, so the week is for operators.
	defaultAge = 7 * 24 * time.Hour
	// defaultDuplicates is the server's duplicate window. Each id in it costs server memory, and
	// the ledgers catch later duplicates.
	defaultDuplicates = 30 * time.Second
)

// StreamOptions are the settings of streams that Edda creates. The zero value works.
type StreamOptions struct {
	wire.Grammar
	Replicas int // 1 when zero
	// MinReplicas is the least number of replicas that each stream must have; 0 means any.
	MinReplicas int
	// Age bounds how long messages are kept, by stream. The defaults are for ever for aggregate
	// events and seven days for the others. An existing stream must keep messages at least as long.
	Age        map[string]time.Duration
	Duplicates time.Duration // 30 s when zero
	// SyncAlways says that the server syncs every write to disk.
	SyncAlways bool
	// Store is noted in each stream that is created, for [SourceOptions]; empty: nothing is.
	Store string
}

// storeOf is the key of a stream's metadata with the store for which it was created.
const storeOf = "edda.store"

// plan is the wanted name, subjects and age of a stream.
type plan struct {
	name     string
	families []wire.Family
	age      time.Duration // zero: for ever
}

func plans() []plan {
	return []plan{
		{wire.AggregateEvents, []wire.Family{wire.FamilyAggregate, wire.FamilyUnescaped}, 0},
		{wire.WorkflowCommands, []wire.Family{wire.FamilyEffect, wire.FamilyWorkflow, wire.FamilyCommand}, defaultAge},
		{wire.WorkflowEvents, []wire.Family{wire.FamilyResult, wire.FamilyEcho, wire.FamilyFact}, defaultAge},
	}
}

// EnsureStreams creates missing streams and adopts existing ones. It changes nothing in these
// except that it adds the subject of echoes and, where it may, that of events whose id is not escaped. An error names the stream, the setting, the wanted and
// the found value, and what to do. An edda.Permanent error needs an operator.
func EnsureStreams(ctx context.Context, js jetstream.JetStream, o StreamOptions) ([]kv.Durability, error) {
	var out []kv.Durability
	var problems []error
	for _, p := range plans() {
		d, _, err := kv.Ensure(ctx, js, o.spec(p))
		if err != nil {
			problems = append(problems, err)
			continue
		}
		out = append(out, d)
	}
	return out, errors.Join(problems...)
}

func (o StreamOptions) spec(p plan) kv.Spec {
	want := o.config(p)
	var added, useful []string
	if slices.Contains(p.families, wire.FamilyEcho) {
		added = []string{o.All(wire.FamilyEcho)}
	}
	needed := want
	if slices.Contains(p.families, wire.FamilyUnescaped) {
		useful = []string{o.All(wire.FamilyUnescaped)}
		needed.Subjects = slices.DeleteFunc(slices.Clone(want.Subjects), func(s string) bool { return s == useful[0] })
	}
	return kv.Spec{StreamConfig: want, SyncAlways: o.SyncAlways, MinReplicas: o.MinReplicas, NewSubjects: added, UsefulSubjects: useful, Unfit: func(found jetstream.StreamConfig) error {
		if problems := compare(needed, found); len(problems) > 0 {
			return edda.Classify(edda.Permanent, "stream %s cannot be used: %s", want.Name, strings.Join(problems, "; "))
		}
		return nil
	}}
}

func (o StreamOptions) config(p plan) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name: p.name, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardOld, Replicas: max(o.Replicas, 1),
		MaxAge: p.age, Duplicates: o.Duplicates,
		// A direct get may come from a replica that lags behind. Timers that wait for an end
		// before the real one would fire too early.
		AllowDirect: false,
	}
	for _, f := range p.families {
		cfg.Subjects = append(cfg.Subjects, o.All(f))
	}
	if age, ok := o.Age[p.name]; ok {
		cfg.MaxAge = age
	}
	if o.Store != "" {
		cfg.Metadata = map[string]string{storeOf: o.Store}
	}
	if cfg.Duplicates == 0 {
		cfg.Duplicates = defaultDuplicates
	}
	if cfg.MaxAge > 0 {
		cfg.Duplicates = min(cfg.Duplicates, cfg.MaxAge) // the server refuses a longer window
	}
	return cfg
}

// compare lists what makes a stream unusable.
func compare(want, found jetstream.StreamConfig) []string {
	var out []string
	wrong := func(setting string, want, found any, advice string) {
		out = append(out, fmt.Sprintf("%s is %v, wanted is %v: %s", setting, found, want, advice))
	}
	for _, subject := range want.Subjects {
		if !wire.Covers(found.Subjects, subject) {
			wrong("subjects", subject, found.Subjects, fmt.Sprintf("add it with: nats stream edit %s --subjects=…", want.Name))
		}
	}
	if found.Storage != want.Storage {
		wrong("storage", "file", found.Storage, "storage cannot be changed; back the stream up, delete it and start again")
	}
	if found.Retention != want.Retention {
		wrong("retention", "limits", found.Retention, "other policies drop messages that a replay needs; create the stream anew with limits")
	}
	if found.MaxAge > 0 && (want.MaxAge == 0 || found.MaxAge < want.MaxAge) {
		wrong("max age", span(want.MaxAge), found.MaxAge,
			fmt.Sprintf("nats stream edit %s --max-age=…, or configure a shorter age", want.Name))
	}
	if found.MaxMsgsPerSubject > 0 {
		wrong("max messages per subject", "unlimited", found.MaxMsgsPerSubject, fmt.Sprintf("nats stream edit %s --max-msgs-per-subject=-1", want.Name))
	}
	if found.NoAck {
		wrong("no-ack", false, true, "Edda cannot know what was stored; create the stream anew with acks")
	}
	if found.Sealed || found.Mirror != nil {
		wrong("sealed or a mirror", false, true, "nothing can be published to it; give Edda a stream of its own")
	}
	return out
}

func span(d time.Duration) string {
	if d == 0 {
		return "for ever"
	}
	return d.String()
}
