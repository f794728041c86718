package effects

import (
	"context"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store"
)

// noClaims is a store without rows that keeps nothing.
type noClaims struct{}

func (noClaims) Claim(string, string) (edda.Claim, bool, error)  { return edda.Claim{}, false, nil }
func (noClaims) Outbox(ulid.ULID, int) ([]store.Row, error)      { return nil, nil }
func (noClaims) Unclaimed() ([]string, error)                    { return nil, nil }
func (noClaims) Commit(context.Context, store.Change) error      { return nil }
func (noClaims) Apply(context.Context, Result, edda.Claim) error { return nil }
func (noClaims) PublishResult(context.Context, Result) error     { return nil }
func (noClaims) Call(context.Context, Call) (Response, error)    { return ok200(), nil }
func (noClaims) Fetch(ctx context.Context, _ string, _ int, wait time.Duration) ([]Delivery, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// ticket is an offered command that gives its place back when it is settled.
type ticket struct {
	cmd    Command
	places chan struct{}
}

func (t *ticket) Command() *Command                        { return &t.cmd }
func (t *ticket) InProgress(context.Context) error         { return nil }
func (t *ticket) Ack(context.Context) error                { <-t.places; return nil }
func (t *ticket) Nak(context.Context, time.Duration) error { panic("given back") }

// BenchmarkOffer brings offered commands to their results: alone, as many at once as are
// called, and as many as a handoff gives.
func BenchmarkOffer(b *testing.B) {
	for _, bm := range []struct {
		name   string
		places int
	}{{"alone", 1}, {"64", 64}, {"512", 512}} {
		b.Run(bm.name, func(b *testing.B) {
			secrets := Secrets{Environ: func(string) (string, bool) { return "s3cret", true }}
			w, err := newWorker(noClaims{}, Options{Source: noClaims{}, Publisher: noClaims{}, Applier: noClaims{},
				Providers: map[string]Provider{"http": noClaims{}}, Secrets: secrets}, compile(b, charge))
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = w.Run(ctx) }()
			ids := make([]string, b.N)
			for i := range ids {
				ids[i] = ulid.Make().String()
			}
			places := make(chan struct{}, bm.places)
			offer := func(id string) {
				c := cmd(id)
				c.Offered, c.Sent = true, time.Now()
				t := &ticket{c, places}
				for places <- struct{}{}; !w.Offer(t); {
					time.Sleep(time.Millisecond) // until the worker has begun
				}
			}
			offer("first")
			b.ReportAllocs()
			b.ResetTimer()
			for _, id := range ids {
				offer(id)
			}
			for range bm.places {
				places <- struct{}{}
			}
			b.StopTimer()
			cancel()
			<-ended
		})
	}
}
