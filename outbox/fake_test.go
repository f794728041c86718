package outbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda"
	"edda/store"
)

// shelf is an outbox in memory, for the relay's own decisions; the real store
// is in store_test.go.
type shelf struct {
	mu        sync.Mutex // guards all below
	rows      []store.Row
	dead      []edda.DeadLetter
	n         uint64
	commits   int
	marks     []edda.Mark // of the last of them
	broken    error
	reads     int
	committed chan struct{}
}

func newShelf() *shelf { return &shelf{committed: make(chan struct{}, 1)} }

// put adds work in one commit and returns it with its ids.
func (s *shelf) put(work ...edda.Work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range work {
		s.n++
		var id ulid.ULID
		_ = id.SetTime(ulid.Timestamp(time.Now()))
		binary.BigEndian.PutUint64(id[8:], s.n)
		s.rows = append(s.rows, store.Row{ID: id, Work: w})
	}
	select {
	case s.committed <- struct{}{}:
	default:
	}
}

func (s *shelf) AppendOutbox(rows []store.Row, after ulid.ULID, limit int) ([]store.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	i, found := slices.BinarySearchFunc(s.rows, after, func(r store.Row, id ulid.ULID) int { return r.ID.Compare(id) })
	if found {
		i++
	}
	return append(rows, s.rows[i:min(i+limit, len(s.rows))]...), nil
}

func (s *shelf) OutboxSize() (int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rows) == 0 {
		return 0, time.Time{}
	}
	return len(s.rows), ulid.Time(s.rows[0].ID.Time())
}

func (s *shelf) Owners(least int, kinds ...edda.WorkKind) (out []store.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := map[store.Owner]int{}
	for _, r := range s.rows {
		if slices.Contains(kinds, r.Work.Kind) {
			rows[store.Owner{Tenant: r.Work.From.Tenant, Saga: r.Work.From.Saga}]++
		}
	}
	for o, n := range rows {
		if o.Rows = n; n >= max(least, 1) {
			out = append(out, o)
		}
	}
	return out
}

func (s *shelf) Outboxed(kinds ...edda.WorkKind) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rows {
		if slices.Contains(kinds, r.Work.Kind) {
			n++
		}
	}
	return n
}

func (s *shelf) Committed() <-chan struct{} { return s.committed }

func (s *shelf) Commit(ctx context.Context, c store.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	if s.broken != nil {
		return s.broken
	}
	s.marks = c.Marks
	gone := map[ulid.ULID]bool{}
	for _, id := range c.Delivered {
		gone[id] = true
	}
	s.rows = slices.DeleteFunc(s.rows, func(r store.Row) bool { return gone[r.ID] })
	s.dead = append(s.dead, c.Dead...)
	return nil
}

// CommitWithin waits in vain for another commit to go with.
func (s *shelf) CommitWithin(ctx context.Context, c store.Change, within time.Duration) error {
	time.Sleep(within)
	return s.Commit(ctx, c)
}

func (s *shelf) breakWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// cleaned is how many commits there were.
func (s *shelf) cleaned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

// looked is how often it was read.
func (s *shelf) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *shelf) size() int { n, _ := s.OutboxSize(); return n }

// harbour is a destination that refuses as it is told and remembers what it
// accepted; it fails the test when the relay breaks a promise of Destination.
type harbour struct {
	t        *testing.T
	mu       sync.Mutex // guards all below
	got      []edda.Work
	offers   int
	sizes    []int
	refuse   func(w edda.Work) error
	delay    time.Duration
	silent   bool // it answers nothing
	underway map[edda.Key]bool
}

func newHarbour(t *testing.T) *harbour {
	return &harbour{t: t, underway: map[edda.Key]bool{}, refuse: func(edda.Work) error { return nil }}
}

func (h *harbour) Deliver(ctx context.Context, batch []edda.Work) []error {
	if h.enter(batch) {
		<-ctx.Done()
		return h.fail(batch, edda.Classify(edda.Temporary, "no answer: %w", ctx.Err()))
	}
	if h.delay > 0 {
		select {
		case <-time.After(h.delay):
		case <-ctx.Done():
		}
	}
	return h.leave(batch)
}

// enter tells whether the batch gets no answer.
func (h *harbour) enter(batch []edda.Work) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sizes = append(h.sizes, len(batch))
	for _, w := range batch {
		if h.underway[w.From] {
			h.t.Errorf("two rows of %s at once", w.From)
		}
		h.underway[w.From] = true
	}
	return h.silent
}

func (h *harbour) fail(batch []edda.Work, err error) []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range batch {
		delete(h.underway, w.From)
	}
	return slices.Repeat([]error{err}, len(batch))
}

func (h *harbour) leave(batch []edda.Work) []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	errs := make([]error, len(batch))
	for i, w := range batch {
		delete(h.underway, w.From)
		h.offers++
		if errs[i] = h.refuse(w); errs[i] == nil {
			w.Payload = slices.Clone(w.Payload) // the batch is the relay's
			h.got = append(h.got, w)
		}
	}
	return errs
}

func (h *harbour) refusing(f func(w edda.Work) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse = f
}

func (h *harbour) ids() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]string, len(h.got))
	for i, w := range h.got {
		ids[i] = w.ID
	}
	return ids
}

func (h *harbour) tries() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.offers
}

func (h *harbour) lane(name string, kinds ...edda.WorkKind) Lane {
	return Lane{Name: name, Kinds: kinds, Destination: h}
}

// judge is a Rejecter that remembers.
type judge struct {
	mu       sync.Mutex
	rejected map[string]Rejection
	broken   error
}

func (j *judge) Reject(_ context.Context, w edda.Work, r Rejection) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	if j.rejected == nil {
		j.rejected = map[string]Rejection{}
	}
	j.rejected[w.ID] = r
	return nil
}

var (
	errDown  = edda.Classify(edda.Temporary, "down")
	alwaysNo = func(edda.Work) error { return errDown }
	yes      = func(edda.Work) error { return nil }
)

func work(id string, kind edda.WorkKind, instance string) edda.Work {
	return edda.Work{ID: id, Kind: kind, Name: "Order.Ship", From: edda.Key{Tenant: "t", Saga: "s", Correlation: instance}}
}

func fact(id, instance string) edda.Work    { return work(id, edda.WorkFact, instance) }
func command(id, instance string) edda.Work { return work(id, edda.WorkCommand, instance) }
func effect(id, instance string) edda.Work  { return work(id, edda.WorkEffect, instance) }

// half is a jitter in the middle.
func half() float64 { return 0.5 }

// start runs a relay until the test ends.
func start(t *testing.T, db box, o Options) *Relay {
	t.Helper()
	o.Jitter = half
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	r, err := newRelay(db, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, errBroken) {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

var errBroken = errors.New("disk full")

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func wantIDs(t *testing.T, h *harbour, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := h.ids(); !slices.Equal(got, want) {
		t.Fatalf("accepted %v, want %v", got, want)
	}
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

// tidied lets what was accepted be removed: with it, what was accepted before may be
// on its way.
func tidied() {
	synctest.Wait()
	time.Sleep(2 * removeWithin)
	synctest.Wait()
}
