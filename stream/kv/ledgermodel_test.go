package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"edda/effects"
	"edda/internal/testkit"
)

// TestTwoClaimsAreNeverLive: many workers want the same commands. Each may freeze, die, restart,
// lose acks, and write and read late at any time. The test checks what each worker believed by its
// own clock, and what was written in the bucket.
func TestTwoClaimsAreNeverLive(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		var o LedgerOptions
		if err := o.validate(); err != nil {
			t.Fatal(err)
		}
		cfg := o.bucket()
		cfg.MaxMsgsPerSubject = 1 << 20 // remember every write
		testkit.Value[jetstream.Stream](t)(w.JS.CreateStream(ctx, cfg))
		n := 0
		rapid.Check(t, func(rt *rapid.T) {
			n++
			m := &model{t: rt, ctx: ctx, js: w.JS, prefix: fmt.Sprintf("n%d-", n)}
			m.commands = rapid.IntRange(1, 3).Draw(rt, "commands")
			workers := rapid.IntRange(2, 5).Draw(rt, "workers")
			m.faults = rapid.SampledFrom([]int{0, 5, 20}).Draw(rt, "faults in a hundred")
			var all sync.WaitGroup
			for i := range workers {
				p := &player{m: m, home: fmt.Sprintf("%ss%d", m.prefix, i), rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), uint64(i)))}
				all.Go(p.play)
			}
			all.Wait()
			m.late.Wait()
			m.checkBeliefs()
			m.checkWrites(n)
		})
	})
}

// model is one run: its commands and what the workers believed.
type model struct {
	t        *rapid.T
	ctx      context.Context
	js       jetstream.JetStream
	prefix   string
	commands int
	faults   int            // in percent
	late     sync.WaitGroup // delayed writes

	mu        sync.Mutex // guards the fields below
	beliefs   []belief
	published map[string]string // results, by command
	problems  []string
}

// belief is a period in which a worker would have called.
type belief struct {
	command, claim string
	from, to       time.Time
}

func (m *model) problem(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// publish records the result that a saga gets: it must be the same from all workers.
func (m *model) publish(command string, result json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.published == nil {
		m.published = map[string]string{}
	}
	if was, ok := m.published[command]; ok && was != string(result) {
		m.problems = append(m.problems, fmt.Sprintf("%s has results %s and %s", command, was, result))
	}
	m.published[command] = string(result)
}

func (m *model) checkBeliefs() {
	for i, a := range m.beliefs {
		for _, b := range m.beliefs[:i] {
			if a.command == b.command && a.claim != b.claim && a.from.Before(b.to) && b.from.Before(a.to) {
				m.problems = append(m.problems, fmt.Sprintf("two live claims: %+v and %+v", a, b))
			}
		}
	}
	for _, p := range m.problems {
		m.t.Error(p)
	}
}

// written is one write in the bucket.
type written struct {
	record
	at time.Time
}

// checkWrites checks the writes of this run's commands.
func (m *model) checkWrites(n int) {
	last := map[string]written{}
	s, err := m.js.Stream(m.ctx, "KV_"+LedgerBucket)
	if err != nil {
		m.t.Fatal(err)
	}
	for seq := uint64(1); ; {
		msg, err := s.GetMsg(m.ctx, seq, jetstream.WithGetMsgSubject(ledgerPrefix+fmt.Sprintf("n%d-.*", n)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			m.t.Fatal(err)
		}
		seq = msg.Sequence + 1
		now := written{at: msg.Time}
		if err := json.Unmarshal(msg.Data, &now.record); err != nil {
			m.t.Fatal(err)
		}
		if was, ok := last[now.CommandID]; ok {
			m.checkWrite(was, now)
		}
		last[now.CommandID] = now
	}
	for id, now := range last {
		if !now.Done {
			m.t.Errorf("%s has no result", id)
		}
	}
}

func (m *model) checkWrite(was, now written) {
	wasRun, _ := cutClaim(was.Owner)
	nowRun, _ := cutClaim(now.Owner)
	wasHome, _ := cutClaim(wasRun)
	nowHome, _ := cutClaim(nowRun)
	switch unwritten := now.at.Sub(was.at); {
	case was.Done && (now.Owner != was.Owner || string(now.Result) != string(was.Result)):
		m.t.Errorf("a result was overwritten: %+v by %+v", was, now)
	case was.Done, now.Owner == was.Owner, was.Released:
	case wasHome == nowHome && wasRun != nowRun: // it died
	case unwritten < DefaultLedgerLease:
		m.t.Errorf("taken over after %v: %+v by %+v", unwritten, was, now)
	}
}

// player is a worker.
type player struct {
	m      *model
	home   string
	starts int
	rand   *rand.Rand
	ledger *Ledger
}

// play works on the commands until all have a result, as an effect worker does.
func (p *player) play() {
	p.start()
	for open := p.open(); len(open) > 0; open = p.open() {
		p.work(open[p.rand.IntN(len(open))])
		p.freeze()
	}
}

// start begins a new run on the same store.
func (p *player) start() {
	p.starts++
	l, err := OpenLedger(p.m.ctx, p.m.js, LedgerOptions{Home: p.home, Run: fmt.Sprint(p.starts)})
	if err != nil {
		p.m.problem("open: %v", err)
		return
	}
	l.kv = &lateKV{KeyValue: l.kv, p: p}
	p.ledger = l
}

func (p *player) open() (ids []string) {
	for i := range p.m.commands {
		id := fmt.Sprintf("c%d", i)
		if e, err := p.ledger.Find(p.m.ctx, p.m.prefix, id); err != nil || !e.Claim.Done {
			ids = append(ids, id)
		} else {
			p.m.publish(id, e.Claim.Result)
		}
	}
	return ids
}

// often is true with a probability in percent.
func (p *player) often(percent int) bool { return p.rand.IntN(100) < percent }

// freeze stops the worker for some time, as a paused process or an overloaded machine does.
func (p *player) freeze() {
	if p.often(p.m.faults) {
		time.Sleep(time.Duration(p.rand.Int64N(int64(3 * DefaultLedgerLease))))
	}
}

// work advances one command, perhaps to its result.
func (p *player) work(id string) {
	e, err := p.ledger.Find(p.m.ctx, p.m.prefix, id)
	if err == nil {
		e, err = p.ledger.Await(p.m.ctx, e)
	}
	if err != nil || e.Claim.Done {
		return
	}
	p.freeze()
	wrongClock := time.Duration(p.rand.Int64N(int64(48*time.Hour))) - 24*time.Hour
	e.Claim.Tenant, e.Claim.CommandID, e.Claim.Claimed = p.m.prefix, id, time.Now().Add(wrongClock)
	sent := time.Now()
	e, err = p.ledger.Claim(p.m.ctx, e)
	if err != nil {
		return // taken, or unknown
	}
	p.hold(e, sent)
}

// hold covers the time from the claim to the result.
func (p *player) hold(e effects.Entry, sent time.Time) {
	p.believe(e, sent)
	for range p.rand.IntN(4) {
		time.Sleep(DefaultLedgerLease / 3)
		p.freeze()
		if p.often(p.m.faults / 4) {
			p.stop(e)
			return
		}
		sent = time.Now()
		now, err := p.ledger.Renew(p.m.ctx, e)
		if errors.Is(err, effects.ErrTaken) {
			p.forget(e)
			return
		}
		if err == nil {
			e = now
			p.believe(e, sent)
		}
	}
	p.freeze()
	e = finished(e, fmt.Sprintf(`"%s of %s"`, e.Claim.Owner, e.Claim.CommandID))
	p.forget(e)
	if p.ledger.Finish(p.m.ctx, e) == nil {
		p.m.publish(e.Claim.CommandID, e.Claim.Result)
	}
}

// stop ends the run, with or without a release.
func (p *player) stop(e effects.Entry) {
	p.forget(e)
	if p.often(50) {
		_ = p.ledger.Release(p.m.ctx, e)
	}
	p.start()
}

// believe records when the worker would call.
func (p *player) believe(e effects.Entry, sent time.Time) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if b := (belief{e.Claim.CommandID, e.Claim.Owner, time.Now(), sent.Add(p.ledger.Lease())}); b.from.Before(b.to) {
		p.m.beliefs = append(p.m.beliefs, b)
	}
}

// forget ends the worker's belief.
func (p *player) forget(e effects.Entry) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	for i, b := range p.m.beliefs {
		if now := time.Now(); b.claim == e.Claim.Owner && b.to.After(now) {
			p.m.beliefs[i].to = now
		}
	}
}

// lateKV delays reads and writes between a worker and the bucket, also beyond the sender's timeout.
// It loses acks, and may answer reads with older values.
type lateKV struct {
	jetstream.KeyValue
	p    *player
	seen map[string]jetstream.KeyValueEntry
}

func (k *lateKV) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	k.p.freeze()
	if old := k.seen[key]; old != nil && k.p.often(k.p.m.faults) {
		return old, nil
	}
	e, err := k.KeyValue.Get(context.WithoutCancel(ctx), key)
	if err != nil || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	if k.seen == nil {
		k.seen = map[string]jetstream.KeyValueEntry{}
	}
	k.seen[key] = e
	return e, nil
}

func (k *lateKV) Create(ctx context.Context, key string, value []byte, o ...jetstream.KVCreateOpt) (uint64, error) {
	return k.write(ctx, func(ctx context.Context) (uint64, error) { return k.KeyValue.Create(ctx, key, value, o...) })
}

func (k *lateKV) Update(ctx context.Context, key string, value []byte, over uint64) (uint64, error) {
	return k.write(ctx, func(ctx context.Context) (uint64, error) { return k.KeyValue.Update(ctx, key, value, over) })
}

func (k *lateKV) write(ctx context.Context, do func(context.Context) (uint64, error)) (uint64, error) {
	if k.p.often(k.p.m.faults / 4) {
		k.p.m.late.Go(func() { // arrives after the timeout
			time.Sleep(3 * DefaultLedgerLease / 2)
			_, _ = do(context.WithoutCancel(ctx))
		})
		return 0, nats.ErrTimeout
	}
	k.p.freeze()
	revision, err := do(context.WithoutCancel(ctx))
	k.p.freeze()
	if err == nil && k.p.often(k.p.m.faults) {
		err = nats.ErrTimeout
	}
	return revision, errors.Join(err, ctx.Err())
}
