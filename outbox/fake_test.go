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
	"edda/internal/testkit"
	"edda/store"
)

// memStore is an outbox in memory, for tests of the relay's decisions. The tests with the real
// store are in store_test.go.
type memStore struct {
	mu        sync.Mutex // guards the fields below
	rows      []store.Row
	dead      []edda.DeadLetter
	n         uint64
	commits   int
	marks     []edda.Mark // of the last commit that had some
	broken    error
	reads     int
	added     chan store.Added
	missed    bool
	committed chan struct{}
}

func newMemStore() *memStore {
	return &memStore{added: make(chan store.Added, 1), committed: make(chan struct{}, 1)}
}

// put adds work in one commit and returns it with its ids.
func (s *memStore) put(work ...edda.Work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := len(s.rows)
	for _, w := range work {
		s.n++
		var id ulid.ULID
		_ = id.SetTime(ulid.Timestamp(time.Now()))
		binary.BigEndian.PutUint64(id[8:], s.n)
		s.rows = append(s.rows, store.Row{ID: id, Work: w})
	}
	select {
	case s.added <- store.Added{Rows: held(s.rows[first:]), Missed: s.missed}:
		s.missed = false
		return
	default:
		s.missed = true
	}
	select {
	case s.committed <- struct{}{}:
	default:
	}
}

func (s *memStore) Outbox(after ulid.ULID, limit int) ([]store.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	i, found := slices.BinarySearchFunc(s.rows, after, func(r store.Row, id ulid.ULID) int { return r.ID.Compare(id) })
	if found {
		i++
	}
	return slices.Clone(s.rows[i:min(i+limit, len(s.rows))]), nil
}

func (s *memStore) OutboxSize() (int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rows) == 0 {
		return 0, time.Time{}
	}
	return len(s.rows), ulid.Time(s.rows[0].ID.Time())
}

func (s *memStore) Outboxed(kinds ...edda.WorkKind) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rows {
		if slices.Contains(kinds, r.Work.Kind) {
			n++
		}
	}
	return n
}

func (s *memStore) Added() <-chan store.Added { return s.added }

func (s *memStore) Committed() <-chan struct{} { return s.committed }

func (s *memStore) Commit(ctx context.Context, c store.Change) error {
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

// CommitWithin waits for the whole time, because no other commit comes.
func (s *memStore) CommitWithin(ctx context.Context, c store.Change, within time.Duration) error {
	time.Sleep(within)
	return s.Commit(ctx, c)
}

func (s *memStore) breakWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// cleaned is the number of commits.
func (s *memStore) cleaned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

// looked is the number of reads.
func (s *memStore) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *memStore) size() int { n, _ := s.OutboxSize(); return n }

// fakeDestination refuses what the test tells it to and records what it accepted. It fails the
// test when the relay breaks a promise of Destination.
type fakeDestination struct {
	t        *testing.T
	mu       sync.Mutex // guards the fields below
	got      []edda.Work
	offers   int
	sizes    []int
	refuse   func(w edda.Work) error
	delay    time.Duration
	silent   bool // it answers nothing
	underway map[edda.Key]bool
}

func newFakeDestination(t *testing.T) *fakeDestination {
	return &fakeDestination{t: t, underway: map[edda.Key]bool{}, refuse: func(edda.Work) error { return nil }}
}

func (h *fakeDestination) Deliver(ctx context.Context, batch []edda.Work) []error {
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
func (h *fakeDestination) enter(batch []edda.Work) bool {
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

func (h *fakeDestination) fail(batch []edda.Work, err error) []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range batch {
		delete(h.underway, w.From)
	}
	return slices.Repeat([]error{err}, len(batch))
}

func (h *fakeDestination) leave(batch []edda.Work) []error {
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

func (h *fakeDestination) refusing(f func(w edda.Work) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse = f
}

func (h *fakeDestination) ids() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]string, len(h.got))
	for i, w := range h.got {
		ids[i] = w.ID
	}
	return ids
}

func (h *fakeDestination) tries() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.offers
}

func (h *fakeDestination) route(name string, kinds ...edda.WorkKind) Route {
	return Route{Name: name, Kinds: kinds, Destination: h}
}

// fakeRejecter records rejections.
type fakeRejecter struct {
	mu       sync.Mutex
	rejected map[string]Rejection
	broken   error
}

func (j *fakeRejecter) Reject(_ context.Context, w edda.Work, r Rejection) error {
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

// half is the mean jitter.
func half() float64 { return 0.5 }

// start runs a relay until the test ends.
func start(t *testing.T, db outboxStore, o Options) *Relay {
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

func wantIDs(t *testing.T, h *fakeDestination, want ...string) {
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

// waitRemoved waits until the accepted rows are removed, and a removal before them too.
func waitRemoved() {
	synctest.Wait()
	time.Sleep(2 * removeWithin)
	synctest.Wait()
}

func TestMain(m *testing.M) { testkit.Main(m) }
