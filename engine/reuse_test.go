package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edda"
)

// TestWhatIsUsedAgainMixesNothingUp: events, results that are handed in, timers, and callers
// that wait, while commits fail, changes cannot be written, and sagas panic. Whatever takes
// the place of what is over, each input is applied once, in its key's order, and each caller
// hears of his own.
func TestWhatIsUsedAgainMixesNothingUp(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, dir)
				defer w.stop()
				w.start(Options{Lanes: []int{1, 2, 8}[seed%3]})
				m := &mixture{world: w, r: rand.New(rand.NewPCG(seed, 1)), logs: map[string][]string{}, results: map[string]chan error{}}
				for range 40 {
					m.round()
				}
				m.calm()
				m.judge()
			})
		})
	}
}

// mixture is what came in, and what has to come of it.
type mixture struct {
	*world
	r       *rand.Rand
	n       int
	logs    map[string][]string // ids of the stream's events that a key has to have, in order
	handed  []string
	results map[string]chan error
	waits   []*waiting
	dead    int
}

type waiting struct {
	id, key, typ string
	out          Outcome
	err          error
	done         bool
}

func (m *mixture) round() {
	m.streams.change(func() { m.streams.held = true })
	if m.r.IntN(2) == 0 {
		m.gate.set(true, nil)
	}
	for range 1 + m.r.IntN(40) {
		m.input()
	}
	m.streams.change(func() { m.streams.held = false })
	synctest.Wait()
	for range m.r.IntN(10) { // on top of what is not durable
		m.input()
	}
	synctest.Wait()
	if m.r.IntN(3) == 0 {
		m.gate.failNext(errDiskFull)
	} else {
		m.gate.set(false, nil)
	}
	if m.r.IntN(2) == 0 {
		m.calm()
	}
}

// calm waits until all of it is durable.
func (m *mixture) calm() {
	m.gate.set(false, nil)
	time.Sleep(3 * commitBackoffMax)
	synctest.Wait()
}

func (m *mixture) input() {
	m.n++
	id, k := fmt.Sprintf("i%d", m.n), fmt.Sprintf("k%d", m.r.IntN(12))
	switch n := m.r.IntN(40); {
	case n < 10:
		m.handed = append(m.handed, id)
		m.results[id] = m.hand(result(id, k, "add"))
	case n < 12: // the store can never write it
		m.dead++
		m.streams.publish("A", event(id, "add", id+strings.Repeat("long", 20_000)))
	case n == 12:
		m.streams.publish("B", event(id, "drop", k))
	case n == 13:
		m.dead++
		m.streams.publish("A", event(id, "lost", k))
	case n == 14:
		m.logs[k] = append(m.logs[k], id)
		ev := event(id, "arm", k)
		ev.Payload = json.RawMessage(`"1s"`)
		m.streams.publish("A", ev)
	case n < 20:
		m.logs[k] = append(m.logs[k], id)
		m.await(id, "add", k)
	case n < 22:
		m.await(id, "drop", k)
	default:
		m.logs[k] = append(m.logs[k], id)
		m.streams.publish("A", event(id, "add", k))
	}
}

func (m *mixture) await(id, typ, k string) {
	wt := &waiting{id: id, key: k, typ: typ}
	m.waits = append(m.waits, wt)
	published := make(chan struct{})
	go func() {
		wt.out, wt.err = m.engine.Await(context.Background(), "acme", id, func(context.Context) error {
			m.streams.publish("A", event(id, typ, k))
			close(published)
			return nil
		})
		wt.done = true
	}()
	<-published
}

func (m *mixture) judge() {
	seen := map[string]int{}
	for _, id := range m.ids() {
		seen[id]++
	}
	for k, want := range m.logs {
		got := slices.DeleteFunc(m.log(key(k)), func(id string) bool { return !slices.Contains(want, id) })
		if !slices.Equal(got, want) {
			m.t.Errorf("%s has %v, not %v", k, got, want)
		}
		for _, id := range want {
			if seen[id] != 1 {
				m.t.Errorf("%s was told of %d times", id, seen[id])
			}
		}
	}
	for _, id := range m.handed {
		if m.wantAnswer(m.results[id], nil); seen[id+".result"] != 1 {
			m.t.Errorf("%s was told of %d times", id, seen[id+".result"])
		}
		if c, found, err := m.db.Claim("acme", id); err != nil || !found || !c.Done || c.CommandID != id {
			m.t.Errorf("the claim of %s: %+v %v", id, c, err)
		}
	}
	copies := m.copies()
	slices.Sort(copies)
	if n := len(copies); n != len(m.handed) && n < 1000 || len(slices.Compact(copies)) != n {
		m.t.Errorf("%d copies of %d results", n, len(m.handed))
	}
	for _, wt := range m.waits {
		if !wt.done || wt.err != nil {
			m.t.Errorf("%s heard %v", wt.id, wt.err)
			continue
		}
		if wt.typ == "drop" {
			if wt.out.Fate != edda.FateIgnored || wt.out.Key != (edda.Key{}) {
				m.t.Errorf("%s heard %+v", wt.id, wt.out)
			}
			continue
		}
		// Timers that were due before it are its doing, too.
		if wt.out.Fate != edda.FateHandled || wt.out.Key != key(wt.key) || len(wt.out.Outputs) == 0 || wt.out.Outputs[len(wt.out.Outputs)-1].Name != wt.id {
			m.t.Errorf("%s of %s heard %+v", wt.id, wt.key, wt.out)
		}
	}
	letters, err := m.db.DeadLetters("", 1000)
	if err != nil || len(letters) != m.dead {
		m.t.Errorf("%d dead letters, not %d: %v", len(letters), m.dead, err)
		for _, l := range letters {
			m.t.Log(l.Reason, l.Key, l.Error)
		}
	}
	if err := m.engine.Healthy(); err != nil && !errors.Is(err, edda.Temporary) {
		m.t.Error(err)
	}
}
