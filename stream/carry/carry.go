// Package carry copies streams from one JetStream to another as they are: with the numbers and the times of their
// messages, so that positions in them stay what they are. The ids of messages are copied, but a server does not compare
// new messages with those of a copy.
package carry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/backoff"
)

const (
	// chunkBytes is far below the payload that every server takes.
	chunkBytes = 128 << 10
	// windowBytes bounds what the source sends ahead.
	windowBytes = 4 << 20
	// answerWithin bounds each step: an answer of a server, or its next chunk.
	answerWithin = 30 * time.Second
	// askAgain is the delay before a question is repeated that nobody takes. It is repeated for answerWithin.
	askAgain = 500 * time.Millisecond
)

// Options say what to copy.
type Options struct {
	Stream   string
	Replicas int // of the copy
	// Tell may be nil. It is called with the bytes that were copied, which are compressed.
	Tell func(bytes int)
}

// Stream copies a stream. If the target has an equal one already, it copies nothing, and it begins a copy anew that was
// cut off, so that a caller can call again at any time. If the target has another stream of that name, the error is
// edda.Permanent. Nothing may write to either stream meanwhile.
func Stream(ctx context.Context, from, to jetstream.JetStream, o Options) (*jetstream.StreamInfo, error) {
	for begun := time.Now(); ; {
		info, err := carry(ctx, from, to, o)
		switch {
		case err == nil:
			return info, nil
		case !passing(err) || time.Since(begun) >= answerWithin || backoff.Wait(ctx, askAgain) != nil:
			return nil, fmt.Errorf("copy stream %s: %w", o.Stream, err)
		}
	}
}

// passing reports whether a copy may succeed soon: the servers elect a leader, or have not given up yet on a copy that was
// cut off some ten seconds ago.
func passing(err error) bool {
	var refused *jetstream.APIError
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &refused) && refused.ErrorCode == nameInUse
}

// nameInUse is JSStreamNameExistRestoreFailedErr of the NATS server.
const nameInUse = 10130

func carry(ctx context.Context, from, to jetstream.JetStream, o Options) (*jetstream.StreamInfo, error) {
	source, err := from.Stream(ctx, o.Stream)
	if err != nil {
		return nil, err
	}
	want, config := source.CachedInfo().State, source.CachedInfo().Config
	there, err := to.Stream(ctx, o.Stream)
	switch {
	case err == nil && same(there.CachedInfo().State, want):
		return there.CachedInfo(), nil
	case err == nil && cutOff(there.CachedInfo(), config):
		if err := to.DeleteStream(ctx, o.Stream); err != nil {
			return nil, err
		}
	case err == nil:
		return nil, edda.Classify(edda.Permanent, "the NATS that it is copied to has another stream of this name: remove it there, or use another account")
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, err
	}
	if err := restore(ctx, from, to, o); err != nil {
		return nil, err
	}
	made, err := to.Stream(ctx, o.Stream)
	if err != nil {
		return nil, err
	}
	if got := made.CachedInfo().State; !same(got, want) {
		return nil, edda.Classify(edda.Permanent, "the copy has messages %d to %d, %d in all, and not %d to %d, %d in all: remove it, stop what writes there, and try again",
			got.FirstSeq, got.LastSeq, got.Msgs, want.FirstSeq, want.LastSeq, want.Msgs)
	}
	return made.CachedInfo(), nil
}

func same(a, b jetstream.StreamState) bool {
	if a.LastSeq != b.LastSeq || a.Msgs != b.Msgs {
		return false
	}
	return a.Msgs == 0 || a.FirstSeq == b.FirstSeq && a.LastTime.Equal(b.LastTime) // of an empty stream servers say one or the other
}

// cutOff reports whether a stream is what a copy has left that was cut off: with the configuration of its source, no
// message ever, and nobody who reads it.
func cutOff(is *jetstream.StreamInfo, source jetstream.StreamConfig) bool {
	config := is.Config
	config.Replicas, config.Metadata = source.Replicas, source.Metadata // a copy has its own number, and servers add theirs
	return is.State.LastSeq == 0 && is.State.Consumers == 0 && reflect.DeepEqual(config, source)
}

// restore has one server send a snapshot, and gives it to the other one.
func restore(ctx context.Context, from, to jetstream.JetStream, o Options) (err error) {
	inbox := from.Conn().NewInbox()
	chunks, err := from.Conn().SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = chunks.Unsubscribe() }()    // the server notices that nobody listens
	_ = chunks.SetPendingLimits(-1, 2*windowBytes) // it is a valid limit
	var snapshot struct {
		Config map[string]any  `json:"config"`
		State  json.RawMessage `json:"state"`
	}
	wanted := map[string]any{"deliver_subject": inbox, "no_consumers": true, "chunk_size": chunkBytes, "window_size": windowBytes}
	if err := call(ctx, from, "STREAM.SNAPSHOT."+o.Stream, wanted, &snapshot); err != nil {
		return err
	}
	snapshot.Config["num_replicas"] = o.Replicas
	var begun struct {
		Deliver string `json:"deliver_subject"`
	}
	if err := call(ctx, to, "STREAM.RESTORE."+o.Stream, snapshot, &begun); err != nil {
		return err
	}
	bytes := 0
	for {
		m, err := next(ctx, chunks)
		if err != nil {
			return err
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get("Status"); status != "" && status != "204" {
				return fmt.Errorf("the snapshot broke off: %s %s", status, m.Header.Get("Description"))
			}
			_, err := ask(ctx, to.Conn(), begun.Deliver, nil)
			return err
		}
		if _, err := ask(ctx, to.Conn(), begun.Deliver, m.Data); err != nil {
			return err
		}
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				return err
			}
		}
		if bytes += len(m.Data); o.Tell != nil {
			o.Tell(bytes)
		}
	}
}

func next(ctx context.Context, chunks *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return chunks.NextMsgWithContext(ctx)
}

// call makes a call of JetStream's API.
func call(ctx context.Context, js jetstream.JetStream, name string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	prefix := cmp.Or(js.Options().APIPrefix, jetstream.DefaultAPIPrefix)
	if domain := js.Options().Domain; domain != "" {
		prefix = "$JS." + domain + ".API"
	}
	said, err := ask(ctx, js.Conn(), strings.TrimSuffix(prefix, ".")+"."+name, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(said, answer)
}

// ask makes a request, and repeats it while nobody takes it: there is no leader, or the server that was asked has not
// heard yet where another one listens. A restore that begins anew where a chunk found nobody waits until the server has
// given the former one up.
func ask(ctx context.Context, nc *nats.Conn, subject string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for {
		m, err := nc.RequestWithContext(ctx, subject, body)
		switch {
		case err == nil:
			return m.Data, refusal(m.Data)
		case !errors.Is(err, nats.ErrNoResponders) || backoff.Wait(ctx, askAgain) != nil:
			return nil, err
		}
	}
}

// refusal is the error in an answer of JetStream's API.
func refusal(answer []byte) error {
	var a struct {
		Error *jetstream.APIError `json:"error"`
	}
	if len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("an answer of NATS is no JSON: %w", err)
	}
	if a.Error != nil {
		return a.Error
	}
	return nil
}
