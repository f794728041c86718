package standby

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/store"
)

// table is what one node knows of the others; the test says it.
type table struct {
	mu       sync.Mutex // guards the fields below
	others   []cluster.Member
	expected string // the node that the standby expects to live
	changed  chan struct{}
}

func newTable() *table { return &table{changed: make(chan struct{}, 1)} }

func (n *table) Others() []cluster.Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.others)
}

func (n *table) Changed() <-chan struct{} { return n.changed }

// Expect only notes the node: a test says who is dead.
func (n *table) Expect(node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected = node
}

// expects waits until the standby expects a node to live.
func (n *table) expects(t *testing.T, node string) {
	t.Helper()
	testkit.Until(t, within, "the standby expects "+node+" to live", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.expected == node
	})
}

// Lives does nothing: a test says who is dead.
func (n *table) Lives(string) {}

// say sets what is known of a node.
func (n *table) say(id string, dead bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.others = slices.DeleteFunc(n.others, func(m cluster.Member) bool { return m.ID == id })
	n.others = append(n.others, cluster.Member{Node: cluster.Node{ID: id, Dead: dead}, Beat: cluster.Beat{Run: id + ".1"}})
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// stand makes the machine a standby. The mark of its ownership comes through the channel.
func (m *machine) stand(nodes Members, founder string) (owned chan cluster.Mark) {
	m.t.Helper()
	at, err := Find(m.t.Context(), m.log, m.replica, true)
	testkit.Must(m.t, err)
	owned = make(chan cluster.Mark, 1)
	end := testkit.Run(m.t, func(ctx context.Context) error {
		at, err := Stand(ctx, m.replica, at, Options{
			Log: m.log, Nodes: nodes, Node: m.name, Run: m.name + ".1", Founder: founder, Level: 1, Logger: zap.NewNop(),
			Tell: func(cluster.Mark, cluster.Ownership) {},
		})
		if errors.Is(err, context.Canceled) {
			return nil
		}
		owned <- at
		return err
	})
	m.stop = func() { end(); testkit.Must(m.t, m.replica.Close()) }
	return owned
}

// own opens the store of a machine that owns the log.
func (m *machine) own(at cluster.Mark) *Shipper {
	m.t.Helper()
	m.stop()
	s := NewShipper(m.t.Context(), m.log, at, m.name+".1", 1)
	var stop func()
	m.db, stop = testkit.OpenStore(m.t, m.dir, store.Options{Ship: s.Ship})
	m.stop = stop
	return s
}

// TestANodeStandsUntilItsTurn: the founder begins, a standby follows while the owner lives, takes over when it is
// dead or hands over, and the owner that comes back follows.
func TestANodeStandsUntilItsTurn(t *testing.T) {
	log := newMemory()
	a, b := newMachine(t, "A", log), newMachine(t, "B", log)
	_, stop := testkit.OpenStore(t, a.dir, store.Options{})
	stop()
	a.open()
	aKnows, bKnows := newTable(), newTable()
	owner := a.own(<-a.stand(aKnows, "A"))
	a.commits("one")

	b.copyOf(a)
	bKnows.say("A", false)
	owned := b.stand(bKnows, "A")
	a.commits("two", "three")
	b.catchUp(a)
	select {
	case <-owned:
		t.Fatal("the standby has taken over from an owner that lives")
	default:
	}
	bKnows.expects(t, "A") // also if it leaves without a hand-over

	bKnows.say("A", true)
	heir := b.own(<-owned)
	bKnows.expects(t, "")
	b.commits("four")
	if err := owner.Confirm(t.Context()); !errors.Is(err, cluster.ErrFenced) {
		t.Errorf("the owner that was replaced still owns the log: %v", err)
	}
	<-owner.Lost()
	a.stop()
	a.open()
	owned = a.stand(aKnows, "A")
	aKnows.say("B", false)
	b.commits("five")
	testkit.Must(t, heir.Confirm(t.Context()))
	a.catchUp(b)

	b.stop()
	testkit.Must(t, heir.Seal("A"))
	a.own(<-owned)
	aKnows.expects(t, "")
	a.commits("six")
	a.stop()
	if err := heir.Confirm(t.Context()); err == nil {
		t.Error("an owner that has handed over still owns the log")
	}
}

// TestALogThatHasLostRecordsIsNotTakenOver: another node had more of it, and that one may be dead.
func TestALogThatHasLostRecordsIsNotTakenOver(t *testing.T) {
	const begins, last = 10, 4
	for name, tt := range map[string]struct {
		beat  cluster.Beat
		grows bool // the log shows its end after a while
		part  bool // the log has the first part of one record more
		lost  bool
	}{
		"a node had more":                 {cluster.Beat{Epoch: begins + 2, LSN: last + 1}, false, false, true},
		"the log has a part of it":        {cluster.Beat{Epoch: begins + 2, LSN: last + 1}, false, true, true},
		"its epoch is not known":          {cluster.Beat{Epoch: begins, LSN: last + 1}, false, false, true},
		"a server did not know the end":   {cluster.Beat{Epoch: begins + 2, LSN: last + 1}, true, false, false},
		"a node had as much":              {cluster.Beat{Epoch: begins + 2, LSN: last}, false, false, false},
		"a node had more of a log before": {cluster.Beat{Epoch: begins - 1, LSN: last + 1}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, nodes, began := newMemory(), newTable(), time.Now()
				log.messages = append(log.messages, cluster.Message{Record: cluster.Record{LSN: last}})
				if tt.part {
					log.messages = append(log.messages, cluster.Message{Record: cluster.Record{Kind: cluster.Entry, LSN: last + 1}, Part: 1, Parts: 2})
				}
				nodes.others = []cluster.Member{{Node: cluster.Node{ID: "B", Dead: true}, Beat: tt.beat}}
				s := &standing{o: Options{Log: log, Nodes: nodes, Begins: begins}, at: cluster.Mark{Seq: 1, LSN: last - 1}}
				if tt.grows {
					time.AfterFunc(cluster.LostWithin/2, func() {
						log.mu.Lock()
						defer log.mu.Unlock()
						log.messages = append(log.messages, cluster.Message{Record: cluster.Record{LSN: last + 1}})
					})
				}
				err, took := s.whole(t.Context()), time.Since(began)
				if !tt.lost {
					testkit.Must(t, err)
				} else if testkit.WantError(t, err, cluster.ErrLost, "the log ends at record 4, and node B had record 5"); !errors.Is(err, edda.Permanent) || took < cluster.LostWithin {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}
