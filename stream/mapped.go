package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// open returns the stream, which must exist. One that others own is not changed; ErrAwaited says that
// it does not exist yet.
func (in inputStream) open(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, in.stream)
	if in.mapping == nil {
		if err != nil {
			return nil, fmt.Errorf("open stream %s: %w", in.stream, err)
		}
		return s, nil
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, missing{in.mapping}
	}
	if err != nil {
		return nil, fmt.Errorf("source %s: open stream %s: %w", in.mapping.Source(), in.stream, err)
	}
	return s, checkReadable(s.CachedInfo().Config, in.mapping)
}

// missing is the error of a source whose stream does not exist. It is ErrAwaited.
type missing struct{ mapping *wire.Mapping }

func (m missing) Error() string {
	return fmt.Sprintf("source %s: there is no stream %s: create it, or correct sources.%s.stream", m.mapping.Source(), m.mapping.Stream(), m.mapping.Source())
}

func (missing) Is(target error) bool { return target == ErrAwaited }

// checkReadable returns an edda.Permanent error if a mapping cannot read the stream: reading without acks
// needs a stream that keeps its messages.
func checkReadable(c jetstream.StreamConfig, m *wire.Mapping) error {
	name := "source " + m.Source() + ": stream " + c.Name
	if c.Retention != jetstream.LimitsPolicy {
		return edda.Classify(edda.Permanent, "%s removes messages once its consumers have them (retention %s): read a stream that sources it, with retention limits",
			name, strings.ToLower(c.Retention.String()))
	}
	if c.Mirror != nil || len(c.Sources) > 0 || c.SubjectTransform != nil { // its messages have other subjects, too
		return nil
	}
	for _, subject := range m.Subjects() {
		if !slices.ContainsFunc(c.Subjects, func(held string) bool { return wire.Overlap(held, subject) }) {
			return edda.Classify(edda.Permanent, "%s has no subject %s, only %s: correct sources.%s.subjects", name, subject, strings.Join(c.Subjects, ", "), m.Source())
		}
	}
	return nil
}

// all reports whether every message of the stream is an input.
func (in inputStream) all(s jetstream.Stream, g wire.Grammar) bool {
	subjects := s.CachedInfo().Config.Subjects
	if in.mapping != nil {
		return len(in.mapping.Subjects()) == 0 // its owner may add subjects to it
	}
	return !slices.ContainsFunc(subjects, func(subject string) bool {
		return !slices.ContainsFunc(in.families, func(f wire.Family) bool { return g.All(f) == subject })
	})
}
