package stream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"edda/stream/wire"
)

// recentGrowth is the factor by which Recent looks further back while it has found too few messages.
const recentGrowth = 8

// Recent returns the last messages of a source's stream, up to n of them, the oldest first. It changes
// nothing.
func Recent(ctx context.Context, js jetstream.JetStream, m *wire.Mapping, n int) ([]wire.Message, error) {
	in := inputStream{stream: m.Stream(), mapping: m}
	s, err := in.open(ctx, js)
	if err != nil {
		return nil, err
	}
	state := s.CachedInfo().State
	if state.Msgs == 0 {
		return nil, nil
	}
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy}
	if !in.all(s, wire.Grammar{}) {
		cfg.FilterSubjects = m.Subjects()
	}
	for window := uint64(n); ; window *= recentGrowth {
		first := max(state.FirstSeq, 1)
		if state.LastSeq > first+window {
			first = state.LastSeq - window + 1
		}
		cfg.OptStartSeq = first
		var found []wire.Message
		err := scanStream(ctx, js, m.Stream(), cfg, state.LastSeq, func(msg jetstream.Msg, md *jetstream.MsgMetadata) error {
			found = append(found, wire.Message{Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(), Stream: m.Stream(), Seq: md.Sequence.Stream, Time: md.Timestamp})
			if len(found) > n {
				found = found[1:]
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("source %s: %w", m.Source(), err)
		}
		if len(found) == n || first <= state.FirstSeq {
			return found, nil
		}
	}
}
