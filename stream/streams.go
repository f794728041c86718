package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
)

// The streams.
const (
	AggregateEvents  = "AGGREGATE_EVENTS"
	WorkflowCommands = "WORKFLOW_COMMANDS"
	WorkflowEvents   = "WORKFLOW_EVENTS"
)

const (
	// defaultAge is how long commands and results are kept: a command that
	// still waits is published again, so a week is for people to look at.
	defaultAge = 7 * 24 * time.Hour
	// defaultDuplicates is the window in which the server drops a message id it
	// has seen; each id in it costs server memory, and the ledgers keep the promise.
	defaultDuplicates = 30 * time.Second
)

// StreamOptions are the settings of streams that Edda creates. The zero value works.
type StreamOptions struct {
	Grammar
	Replicas int // 1 when zero
	// Age bounds how long messages are kept, by stream; where it has no entry,
	// events are kept for ever and the others for seven days. It is also what an
	// existing stream must keep at least.
	Age        map[string]time.Duration
	Duplicates time.Duration // 30 s when zero
	// SyncAlways says that the server is known to sync every write to disk.
	SyncAlways bool
}

// plan is one stream as Edda wants it.
type plan struct {
	name     string
	families []Family
	age      time.Duration // zero: for ever
}

func plans() []plan {
	return []plan{
		{AggregateEvents, []Family{FamilyAggregate}, 0},
		{WorkflowCommands, []Family{FamilyEffect, FamilyWorkflow, FamilyCommand}, defaultAge},
		{WorkflowEvents, []Family{FamilyResult, FamilyFact}, defaultAge},
	}
}

// Durability is how well a stream keeps what it acknowledged.
type Durability struct {
	Stream   string        `json:"stream"`
	Created  bool          `json:"created"` // by this start
	Replicas int           `json:"replicas"`
	Age      time.Duration `json:"age"` // zero: for ever
	// Synced is true where the server syncs every write, or is one of several.
	Synced bool `json:"synced"`
	// Note says in words what is not as Edda would have made it, or what a power
	// failure can do.
	Note string `json:"note,omitempty"`
}

// EnsureStreams creates the streams that are missing and adopts those that are
// there, unchanged. An error names the stream, the setting, what is wanted, what
// was found, and what to do; one of edda.Permanent stays until somebody acts.
func EnsureStreams(ctx context.Context, js jetstream.JetStream, o StreamOptions) ([]Durability, error) {
	var out []Durability
	var problems []error
	for _, p := range plans() {
		d, err := ensure(ctx, js, o.config(p), o.SyncAlways)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		out = append(out, d)
	}
	return out, errors.Join(problems...)
}

func (o StreamOptions) config(p plan) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name: p.name, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardOld, Replicas: max(o.Replicas, 1),
		MaxAge: p.age, Duplicates: o.Duplicates,
		// A direct get may be answered by a replica that is behind, and the end
		// of a stream that is too near fires timers too early.
		AllowDirect: false,
	}
	for _, f := range p.families {
		cfg.Subjects = append(cfg.Subjects, o.All(f))
	}
	if age, ok := o.Age[p.name]; ok {
		cfg.MaxAge = age
	}
	if cfg.Duplicates == 0 {
		cfg.Duplicates = defaultDuplicates
	}
	if cfg.MaxAge > 0 {
		cfg.Duplicates = min(cfg.Duplicates, cfg.MaxAge) // the server refuses a longer window
	}
	return cfg
}

func ensure(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, synced bool) (Durability, error) {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return create(ctx, js, want, synced)
	}
	if err != nil {
		return Durability{}, fmt.Errorf("look at stream %s: %w", want.Name, err)
	}
	found := s.CachedInfo().Config
	if problems := compare(want, found); len(problems) > 0 {
		return Durability{}, edda.Classify(edda.Permanent, "stream %s cannot be used: %s", want.Name, strings.Join(problems, "; "))
	}
	return durability(found, synced, notes(want, found)), nil
}

func create(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, synced bool) (Durability, error) {
	s, err := js.CreateStream(ctx, want)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return ensure(ctx, js, want, synced) // another process was faster
	}
	if err != nil {
		return Durability{}, creation(ctx, js, want, err)
	}
	if err := putSettings(ctx, js, s); err != nil {
		return Durability{}, err
	}
	d := durability(s.CachedInfo().Config, synced, nil)
	d.Created = true
	return d, nil
}

// putSettings has the server write the settings of a stream that was just made. It takes the folder
// of one that it could not read for a new one, and leaves in it what it could not read: without
// an update the stream would be gone at its next start.
func putSettings(ctx context.Context, js jetstream.JetStream, s jetstream.Stream) error {
	cfg := s.CachedInfo().Config
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("write the settings of stream %s: %w", cfg.Name, err)
	}
	return nil
}

// creation explains why a stream could not be made.
func creation(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, err error) error {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return fmt.Errorf("create stream %s: %w", want.Name, err)
	}
	if api.ErrorCode == jetstream.ErrorCode(subjectOverlap) {
		for _, subject := range want.Subjects {
			if other, e := js.StreamNameBySubject(ctx, subject); e == nil {
				return edda.Classify(edda.Permanent,
					"create stream %s: its subject %s belongs to stream %s: remove the subject from that stream, or delete it (nats stream edit %s)",
					want.Name, subject, other, other)
			}
		}
	}
	return edda.Classify(edda.Permanent, "create stream %s (%d replicas, file storage): %w", want.Name, want.Replicas, err)
}

// subjectOverlap is the server's code for subjects that another stream has.
const subjectOverlap = 10065

// compare lists what makes a stream unfit.
func compare(want, found jetstream.StreamConfig) []string {
	var out []string
	wrong := func(setting string, want, found any, advice string) {
		out = append(out, fmt.Sprintf("%s is %v, wanted is %v: %s", setting, found, want, advice))
	}
	for _, subject := range want.Subjects {
		if !covered(found.Subjects, subject) {
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

// notes lists what is worth knowing of a stream that is good enough.
func notes(want, found jetstream.StreamConfig) []string {
	var out []string
	if found.Replicas < want.Replicas {
		out = append(out, fmt.Sprintf("%d replicas instead of %d", found.Replicas, want.Replicas))
	}
	if found.MaxMsgs > 0 || found.MaxBytes > 0 {
		out = append(out, fmt.Sprintf("limited to %d messages and %d bytes, which may drop messages before they are read", found.MaxMsgs, found.MaxBytes))
	}
	if found.Duplicates < want.Duplicates {
		out = append(out, fmt.Sprintf("duplicate window %s instead of %s", found.Duplicates, want.Duplicates))
	}
	return out
}

func durability(found jetstream.StreamConfig, synced bool, notes []string) Durability {
	d := Durability{
		Stream: found.Name, Replicas: found.Replicas, Age: found.MaxAge,
		Synced: synced || found.Replicas > 1,
	}
	if !d.Synced {
		notes = append(notes, "one replica, and the server is not known to sync every write (sync_interval: always): a power failure may lose what it acknowledged")
	}
	d.Note = strings.Join(notes, "; ")
	return d
}

// covered tells whether one of the stream's subjects takes in all that the
// wanted pattern matches.
func covered(have []string, want string) bool {
	for _, h := range have {
		if subset(strings.Split(want, "."), strings.Split(h, ".")) {
			return true
		}
	}
	return false
}

func subset(want, have []string) bool {
	for i, h := range have {
		if h == ">" {
			return len(want) > i
		}
		if i >= len(want) || (h != "*" && h != want[i]) {
			return false
		}
	}
	return len(want) == len(have)
}
