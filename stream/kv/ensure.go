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

// Spec is a stream as Edda makes it. A bucket is one, too.
type Spec struct {
	jetstream.StreamConfig
	// SyncAlways says that the server is known to sync every write to disk.
	SyncAlways bool
	// NewSubjects are subjects that the streams of earlier versions lack. They are added.
	NewSubjects []string
	// Unfit is an error where the stream that was found cannot be used.
	Unfit func(found jetstream.StreamConfig) error
	// Prepare has the last word on the settings of one that is made; it may be nil.
	Prepare func(*jetstream.StreamConfig) error
}

// Ensure creates the stream, or adopts the one that is there, unchanged but for NewSubjects.
// Its errors name the stream; one of edda.Permanent stays until somebody acts.
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
	if err := want.Unfit(found); err != nil {
		return Durability{}, nil, err
	}
	return durability(found, want.SyncAlways, notes(want.StreamConfig, found)), s, nil
}

// addSubjects adds the new subjects that a stream lacks. Where the server refuses, Unfit says
// what to do.
func addSubjects(ctx context.Context, js jetstream.JetStream, s jetstream.Stream, want Spec) (jetstream.Stream, error) {
	cfg := s.CachedInfo().Config
	missing := slices.DeleteFunc(slices.Clone(want.NewSubjects), func(subject string) bool { return wire.Covers(cfg.Subjects, subject) })
	if len(missing) == 0 {
		return s, nil
	}
	cfg.Subjects = append(slices.Clone(cfg.Subjects), missing...)
	changed, err := js.UpdateStream(ctx, cfg)
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

func create(ctx context.Context, js jetstream.JetStream, want Spec) (Durability, jetstream.Stream, error) {
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

// createError explains why a stream could not be made.
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

// subjectOverlap is the server's code for subjects that another stream has.
const subjectOverlap = 10065

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
