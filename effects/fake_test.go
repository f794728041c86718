package effects

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/internal/testkit"
	"edda/manifests"
	"edda/store"
)

// wire is the stream's side in memory: it delivers, delivers again what was
// given back, and remembers results.
type wire struct {
	fetching sync.Map // by effect, while Fetch runs

	mu      sync.Mutex // guards all below
	waiting []*message
	results []Result
	refuse  error         // of PublishResult
	most    int           // bytes of a success that can be published; 0: any
	more    chan struct{} // closed when something waits, to wake all Fetches
	acked   int
	beats   int
	fetches int
}

func newWire() *wire { return &wire{more: make(chan struct{})} }

// message is one delivery.
type message struct {
	w   *wire
	cmd Command
}

func (m *message) Command() *Command { return &m.cmd }

func (m *message) InProgress(context.Context) error {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.w.beats++
	return nil
}

func (m *message) Ack(context.Context) error {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.w.acked++
	return nil
}

func (m *message) Nak(_ context.Context, delay time.Duration) error {
	if delay <= 0 { // in the order in which they are given back
		m.w.send(m.cmd)
		return nil
	}
	time.AfterFunc(delay, func() { m.w.send(m.cmd) })
	return nil
}

func (w *wire) send(cmds ...Command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range cmds {
		w.waiting = append(w.waiting, &message{w, c})
	}
	close(w.more)
	w.more = make(chan struct{})
}

func (w *wire) Fetch(ctx context.Context, effect string, max int, wait time.Duration) ([]Delivery, error) {
	if _, twice := w.fetching.LoadOrStore(effect, true); twice {
		panic("Fetch is called twice at once for " + effect)
	}
	defer w.fetching.Delete(effect)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		got, more := w.pick(effect, max)
		if len(got) > 0 {
			return got, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, nil
		case <-more:
		}
	}
}

func (w *wire) pick(effect string, max int) ([]Delivery, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetches++
	var out []Delivery
	rest := w.waiting[:0]
	for _, m := range w.waiting {
		if m.cmd.Effect == effect && len(out) < max {
			out = append(out, m)
			continue
		}
		rest = append(rest, m)
	}
	w.waiting = rest
	return out, w.more
}

func (w *wire) PublishResult(_ context.Context, r Result) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return w.refuse
	}
	if w.most > 0 && len(r.Payload) > w.most && r.Outcome == edda.Succeeded {
		return edda.Classify(edda.Permanent, "too large")
	}
	w.results = append(w.results, r)
	return nil
}

func (w *wire) refusing(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = err
}

func (w *wire) got() []Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Result(nil), w.results...)
}

func (w *wire) fetched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fetches
}

// left are the commands that wait to be fetched.
func (w *wire) left() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.waiting {
		ids = append(ids, m.cmd.ID)
	}
	return ids
}

func (w *wire) heartbeats() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.beats
}

func (w *wire) acks() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

// bank is a provider that answers as it is told and counts calls by key.
type bank struct {
	mu     sync.Mutex // guards all below
	calls  []Call
	most   int // at once
	now    int
	at     []time.Time
	answer func(ctx context.Context, n int, c Call) (Response, error)
}

func newBank() *bank {
	return &bank{answer: func(context.Context, int, Call) (Response, error) { return ok200(), nil }}
}

func ok200() Response { return Response{Status: 200, Body: map[string]any{"id": "P1"}} }

func status(code int) Response {
	return Response{Status: code, Retry: code >= 500 || code == 429, Refused: code == 429, Unknown: code >= 500, Apart: code == 401, Body: map[string]any{"code": "oops"}}
}

func (b *bank) Call(ctx context.Context, c Call) (Response, error) {
	c.Config = maps.Clone(c.Config) // the map is the worker's again once the call is over
	b.mu.Lock()
	c.Command = nil // a provider keeps no command
	b.calls, b.at = append(b.calls, c), append(b.at, time.Now())
	b.now++
	b.most = max(b.most, b.now)
	n, answer := len(b.calls), b.answer
	b.mu.Unlock()
	defer func() { b.mu.Lock(); b.now--; b.mu.Unlock() }()
	return answer(ctx, n, c)
}

func (b *bank) answers(f func(ctx context.Context, n int, c Call) (Response, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

func (b *bank) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls)
}

// all are the calls so far.
func (b *bank) all() []Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

// hang answers nothing until it is cut off.
func hang(ctx context.Context, _ int, _ Call) (Response, error) {
	<-ctx.Done()
	return Response{}, ctx.Err()
}

// holdUntil answers once the channel is closed.
func holdUntil(wait <-chan struct{}) func(context.Context, int, Call) (Response, error) {
	return func(ctx context.Context, _ int, _ Call) (Response, error) {
		select {
		case <-wait:
			return ok200(), nil
		case <-ctx.Done():
			return Response{}, ctx.Err()
		}
	}
}

func always(code int) func(context.Context, int, Call) (Response, error) {
	return func(context.Context, int, Call) (Response, error) { return status(code), nil }
}

// testKinds is a provider without demands.
func testKinds() map[string]ProviderKind {
	return map[string]ProviderKind{"http": {OK: "status >= 200 and status < 300"}}
}

func compile(t testing.TB, text string) *Effect {
	t.Helper()
	e, problems := compileText(t, text)
	if problems.Failed() {
		t.Fatalf("%v", problems)
	}
	return e
}

func compileText(t testing.TB, text string) (*Effect, manifests.Problems) {
	t.Helper()
	f, problems := manifests.Parse("effects.yaml", []byte(text))
	if problems.Failed() || len(f.Effects) != 1 {
		return nil, problems
	}
	return Compile(f.Effects[0], testKinds())
}

const charge = `
effect: charge
http: {url: "https://pay/charges", headers: {Authorization: "=secret.PAY"}, body: =payload}
ok: status in [200, 201]
fail: status in [402, 409]
result: {id: =body.id}
timeout: 10s
retry: {max: 5, backoff: 1s..1m}
`

const once = charge + "delivery: at_most_once\n"

// house is a worker with a real store.
type house struct {
	*wire
	bank *bank
	db   *store.DB
	dir  string
	w    *Worker
	log  *zap.Logger // nil: none
	tune func(*Options)
	stop func()
}

func build(t *testing.T, manifests ...string) *house {
	t.Helper()
	h := &house{wire: newWire(), bank: newBank(), dir: t.TempDir()}
	h.db = openStore(t, h.dir)
	h.restart(t, nil, manifests...)
	return h
}

// openStore runs a store until the test ends.
func openStore(t *testing.T, dir string) *store.DB {
	t.Helper()
	db, _ := testkit.OpenStore(t, dir, store.Options{})
	return db
}

// restart ends the worker, if there is one, and starts another run of it, over
// the ledger that wrap makes of the store.
func (h *house) restart(t *testing.T, wrap func(claims) claims, manifests ...string) {
	t.Helper()
	if h.stop != nil {
		h.stop()
	}
	var db claims = h.db
	if wrap != nil {
		db = wrap(db)
	}
	var set []*Effect
	for _, m := range manifests {
		set = append(set, compile(t, m))
	}
	w, err := newWorker(db, h.options(), set...)
	if err != nil {
		t.Fatal(err)
	}
	h.w = w
	h.stop = testkit.Run(t, w.Run)
}

func (h *house) options() Options {
	secret := func(name string) (string, bool) { return "s3cret", name == "EDDA_SECRET_PAY" }
	o := Options{
		Source: h, Publisher: h, Providers: map[string]Provider{"http": h.bank}, Secrets: Secrets{Environ: secret},
		Jitter: func() float64 { return 0.5 }, Concurrency: 4, Grace: time.Second, Log: h.log,
	}
	if h.tune != nil {
		h.tune(&o)
	}
	return o
}

// one waits for the only result.
func (h *house) one(t *testing.T) Result {
	t.Helper()
	synctest.Wait()
	got := h.got()
	if len(got) != 1 {
		t.Fatalf("%d results, want one: %+v", len(got), got)
	}
	return got[0]
}

func cmd(id string) Command {
	return Command{Tenant: "acme", ID: id, Effect: "charge", Payload: json.RawMessage(`{"amount":25}`),
		Metadata: json.RawMessage(`{"saga":"order","key":"O1","step":"charge","extra":[1]}`)}
}

func revoke(id string) Command {
	c := cmd(id)
	c.Revoke, c.Payload = true, nil
	return c
}

func wantResult(t *testing.T, r Result, kind edda.Outcome, code string, attempts int) {
	t.Helper()
	var f failure
	if err := json.Unmarshal(r.Payload, &f); err != nil {
		t.Fatal(err)
	}
	if r.Outcome != kind || f.Code != code || r.Attempts != attempts || (kind != edda.Succeeded && f.Attempts != attempts) {
		t.Fatalf("result %s %s, want %s %q after %d calls", r.Outcome, r.Payload, kind, code, attempts)
	}
}

func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func problemText(ps manifests.Problems) string {
	var b strings.Builder
	for _, p := range ps {
		b.WriteString(p.Message + "\n")
	}
	return b.String()
}

// handle brings a command of charge to its end without a consumer.
func handle(t *testing.T, w *Worker, c *Command) disposition {
	j := &job{w: w, limiter: w.limiter("charge"), c: c, deadlines: deadlines{t.Context(), t.Context(), t.Context()}}
	return j.handle()
}
