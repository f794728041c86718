package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/engine"
	"edda/stream/wire"
)

// removeWithin bounds the deletion of the consumers in Close.
const removeWithin = time.Second

// CatchUp reads aggregate events and facts again for sagas that are behind, beside the main source.
// It is an engine.Past.
type CatchUp struct {
	*Source
	cancel context.CancelFunc
	ended  chan struct{} // closed after Run
	err    error         // of Run; written before ended is closed
}

var _ engine.Past = (*CatchUp)(nil)

// OpenCatchUp begins to read for a saga and a tenant behind the positions. It skips what the
// streams no longer hold, and Losses reports it. The options are those of the main source.
func OpenCatchUp(ctx context.Context, js jetstream.JetStream, p engine.SagaTenant, from []edda.Checkpoint, o SourceOptions) (*CatchUp, error) {
	o.CatchUp, o.AcceptLoss, o.From, o.Restored, o.Committed = p.Saga, true, FromAll, false, nil
	o.Name += "\x00" + p.Tenant
	if p.Tenant != engine.AllTenants && !o.NoTenancy {
		if !o.Tenants.Match(p.Tenant) {
			return nil, edda.Classify(edda.Permanent, "the tenant %s is not served here: it goes on once it is", p.Tenant)
		}
		o.Tenants = wire.Tenants{p.Tenant}
	}
	s, err := OpenSource(ctx, js, from, o)
	if err != nil {
		return nil, fmt.Errorf("read the streams for saga %s: %w", p.Saga, err)
	}
	c := &CatchUp{Source: s, ended: make(chan struct{})}
	ctx, c.cancel = context.WithCancel(ctx)
	go func() {
		defer close(c.ended)
		c.err = s.Run(ctx)
	}()
	return c, nil
}

// Fetch is [Source.Fetch]. It fails after Run has failed and the buffers are empty.
func (c *CatchUp) Fetch(ctx context.Context, max int, wait time.Duration) (engine.Fetched, error) {
	got, err := c.Source.Fetch(ctx, max, wait)
	select {
	case <-c.ended:
		if len(got.Events) == 0 && err == nil {
			err = fmt.Errorf("read the streams again: %w", c.err)
		}
	default:
	}
	return got, err
}

// Losses describes what the streams no longer held.
func (c *CatchUp) Losses() (what []string) {
	for _, l := range c.Source.Losses() {
		what = append(what, l.Accepted())
	}
	return what
}

// Close stops reading and deletes the consumers.
func (c *CatchUp) Close() {
	c.cancel()
	<-c.ended
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	c.Remove(ctx)
}

// StreamStart is the position before the first message of a stream, and its number of messages.
type StreamStart struct {
	edda.Checkpoint
	Messages uint64
}

// Beginnings returns the starts of the streams of aggregate events and facts.
func Beginnings(ctx context.Context, js jetstream.JetStream, c wire.Codec) (out []StreamStart, err error) {
	for _, in := range eventInputs(c) {
		s, err := in.open(ctx, js)
		if err != nil {
			return nil, err
		}
		info := s.CachedInfo()
		out = append(out, StreamStart{beginning(info, FromAll), info.State.Msgs})
	}
	return out, nil
}
