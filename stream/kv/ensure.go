package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// Durability describes how safely a stream keeps acknowledged messages.
type Durability struct {
	Stream   string        `json:"stream"`
	Created  bool          `json:"created"` // by this start
	Replicas int           `json:"replicas"`
	Age      time.Duration `json:"age"` // zero: for ever
	// Synced is set if the server syncs every write or is one of several.
	Synced bool `json:"synced"`
	// Note describes settings that differ from the wanted ones, and the risk of a power failure.
	Note string `json:"note,omitempty"`
}

// Spec is the wanted stream. A bucket is a stream, too.
type Spec struct {
	jetstream.StreamConfig
	// SyncAlways says that the server syncs every write to disk.
	SyncAlways bool
	// NewSubjects are subjects that streams of earlier versions lack. Ensure adds them.
	NewSubjects []string
	// UsefulSubjects are like NewSubjects, but the stream does its work without them. Ensure adds
	// them if the server and the rights of the connection allow it.
	UsefulSubjects []string
	// MinReplicas is the least number of replicas that the stream must have; 0 means any.
	MinReplicas int
	// Unfit returns an error if the existing stream cannot be used.
	Unfit func(found jetstream.StreamConfig) error
	// Prepare, if set, changes the settings before the stream is created.
	Prepare func(*jetstream.StreamConfig) error
}

// Ensure creates the stream or adopts an existing one. It adds NewSubjects and UsefulSubjects to that
// and changes nothing else. Errors name the stream; an edda.Permanent one needs an operator.
func Ensure(ctx context.Context, js jetstream.JetStream, want Spec) (Durability, jetstream.Stream, error) {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return create(ctx, js, want)
	}
	if err != nil {
		return Durability{}, nil, fmt.Errorf("look at stream %s: %w", want.Name, err)
	}
	if s, err = addSubjects(ctx, js, s, want); err != nil {
		return Durability{}, nil, err
	}
	found := s.CachedInfo().Config
	if err := errors.Join(EnoughReplicas(found, want.MinReplicas), want.Unfit(found)); err != nil {
		return Durability{}, nil, err
	}
	if more, _, err := addTo(ctx, js, s, want.UsefulSubjects); err == nil {
		s = more
	}
	found = s.CachedInfo().Config
	return durability(found, want.SyncAlways, notes(want.StreamConfig, found)), s, nil
}

// EnoughReplicas returns an edda.Permanent error that says what to do if a stream has fewer
// replicas than the least number. A bucket is a stream, too.
func EnoughReplicas(found jetstream.StreamConfig, least int) error {
	if found.Replicas >= least {
		return nil
	}
	kind, edit, name := "stream", "stream edit", found.Name
	if bucket, ok := strings.CutPrefix(found.Name, "KV_"); ok {
		kind, edit, name = "bucket", "kv edit", bucket
	}
	return edda.Classify(edda.Permanent, "%s %s has %d of the %d replicas that a cluster needs: nats %s %s --replicas=%d adds them",
		kind, name, found.Replicas, least, edit, name, least)
}

// addSubjects adds the new subjects that a stream lacks. If the server refuses, Unfit says what to
// do.
func addSubjects(ctx context.Context, js jetstream.JetStream, s jetstream.Stream, want Spec) (jetstream.Stream, error) {
	changed, missing, err := addTo(ctx, js, s, want.NewSubjects)
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused):
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("add the subjects %s to stream %s (nats stream edit %s --subjects=… does it, too): %w",
			strings.Join(missing, ", "), want.Name, want.Name, err)
	}
	return changed, nil
}

// addTo adds subjects to a stream, and returns those that it lacked.
func addTo(ctx context.Context, js jetstream.JetStream, s jetstream.Stream, subjects []string) (_ jetstream.Stream, missing []string, _ error) {
	cfg := s.CachedInfo().Config
	missing = slices.DeleteFunc(slices.Clone(subjects), func(subject string) bool { return wire.Covers(cfg.Subjects, subject) })
	if len(missing) == 0 {
		return s, nil, nil
	}
	cfg.Subjects = append(slices.Clone(cfg.Subjects), missing...)
	changed, err := js.UpdateStream(ctx, cfg)
	return changed, missing, err
}

func create(ctx context.Context, js jetstream.JetStream, want Spec) (Durability, jetstream.Stream, error) {
	want.Replicas = max(want.Replicas, want.MinReplicas)
	if want.Prepare != nil {
		if err := want.Prepare(&want.StreamConfig); err != nil {
			return Durability{}, nil, err
		}
	}
	s, err := js.CreateStream(ctx, want.StreamConfig)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return Ensure(ctx, js, want) // another process was faster
	}
	if err != nil {
		return Durability{}, nil, createError(ctx, js, want.StreamConfig, err)
	}
	d := durability(s.CachedInfo().Config, want.SyncAlways, nil)
	d.Created = true
	return d, s, putSettings(ctx, js, s)
}

// putSettings updates a stream that was just created, so that the server writes its settings. The
// server may have taken an unreadable directory for a new stream. Without the update the stream
// would be missing after the next restart.
func putSettings(ctx context.Context, js jetstream.JetStream, s jetstream.Stream) error {
	cfg := s.CachedInfo().Config
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("write the settings of stream %s: %w", cfg.Name, err)
	}
	return nil
}

// createError explains why a stream could not be created.
func createError(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, err error) error {
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

// subjectOverlap is the server's error code for subjects of another stream.
const subjectOverlap = 10065

// notes lists the remarks on a stream that can be used.
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
