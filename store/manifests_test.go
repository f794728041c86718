package store

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
)

const eon = 24 * time.Hour

// library is a store with texts of versions, and a clock.
type library struct {
	*opened
	t   *testing.T
	now time.Time
}

func newLibrary(t *testing.T, texts ...string) *library {
	l := &library{t: t, now: noon}
	l.opened = open(t, t.TempDir(), Options{Now: func() time.Time { return l.now }})
	for i, text := range texts {
		l.keep(text, noon.Add(time.Duration(i)*time.Minute))
	}
	return l
}

// keep writes a text, named saga-version-hash.
func (l *library) keep(name string, loaded time.Time) {
	l.t.Helper()
	m := textNamed(name)
	m.Text, m.Loaded = "saga: "+m.Saga, loaded
	l.commit(l.t, Change{Manifests: []edda.Manifest{m}})
}

func textNamed(name string) edda.Manifest {
	parts := strings.Split(name, "-")
	return edda.Manifest{Saga: parts[0], Version: int(parts[1][0] - '0'), Hash: parts[2]}
}

// gc sweeps the texts at a day, with those that are loaded, and says how many went.
func (l *library) gc(day int, loaded ...string) int {
	l.t.Helper()
	l.now = noon.Add(time.Duration(day) * eon)
	n := l.sweep(l.t, KindManifests, l.cutoffs(loaded...)).Rows
	l.check(l.t)
	return n
}

func (l *library) cutoffs(loaded ...string) Cutoffs {
	return Cutoffs{Manifests: l.now.Add(-10 * eon), Now: l.now, Loaded: func(m edda.Manifest) bool {
		return slices.ContainsFunc(loaded, func(name string) bool {
			n := textNamed(name)
			return n.Saga == m.Saga && n.Version == m.Version && n.Hash == m.Hash
		})
	}}
}

// left are the texts, with a star where they are idle.
func (l *library) left() string {
	l.t.Helper()
	all, err := l.Manifests()
	if err != nil {
		l.t.Fatal(err)
	}
	var names []string
	for _, m := range all {
		name := m.Saga + "-" + string(rune('0'+m.Version)) + "-" + m.Hash
		if !m.Idle.IsZero() {
			name += "*"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// begin and remove are an instance on a version, and its end with its history.
func (l *library) begin(k string, version int, status edda.Status) {
	l.t.Helper()
	tr := finished(key(k), 1, status)
	tr.Instance.Version = version
	l.commit(l.t, Change{Transitions: []edda.Transition{tr}})
}

func TestUnneededManifestsAreRemoved(t *testing.T) {
	l := newLibrary(t, "order-1-a", "order-2-b", "order-3-c", "bill-1-x")
	same(t, "at first", l.gc(0), 0)
	same(t, "marked", l.left(), "bill-1-x order-1-a* order-2-b* order-3-c")
	same(t, "too early", l.gc(9), 0)
	same(t, "loaded again", l.gc(10, "order-1-a"), 0)
	same(t, "its mark is gone", l.left(), "bill-1-x order-1-a order-2-b* order-3-c")
	same(t, "in time", l.gc(11, "order-1-a"), 1)
	same(t, "left", l.left(), "bill-1-x order-1-a order-3-c")
	same(t, "counted from anew", l.gc(12), 0)
	same(t, "not by the first mark", l.gc(21), 0)
	same(t, "by the second", l.gc(23), 1)
	same(t, "the newest stay", l.left(), "bill-1-x order-3-c")
}

func TestNeededManifestsAreNotRemoved(t *testing.T) {
	l := newLibrary(t, "order-1-a", "order-2-b", "order-3-c")
	saga := key("x").Saga
	if saga != "order" {
		t.Fatalf("the saga of the tests is %s", saga)
	}
	l.begin("done", 1, edda.StatusDone)
	l.commit(t, Change{Replays: []Replay{{ID: "R1", Saga: "order", Version: 2, State: "running", Begun: noon}}})
	same(t, "used", l.gc(0), 0)
	same(t, "an instance that is done, a replay that runs", l.left(), "order-1-a order-2-b order-3-c")
	l.commit(t, Change{Replays: []Replay{{ID: "R1", Saga: "order", Version: 2, State: "done", Begun: noon, Ended: noon}}})
	l.sweep(t, KindInstances, before(noon.Add(eon)))
	same(t, "not used any more", l.gc(1), 0)
	same(t, "marked", l.left(), "order-1-a* order-2-b* order-3-c")
	same(t, "its history is there", l.gc(20), 0)
	same(t, "all stay", l.left(), "order-1-a* order-2-b* order-3-c")
	l.sweep(t, KindHistory, Cutoffs{History: noon.Add(5 * eon)})
	same(t, "its history is gone", l.gc(20), 2)
	same(t, "left", l.left(), "order-3-c")
}

// TestAManifestNeededInTheMeantimeIsNotRemoved: between the look and the commit.
func TestAManifestNeededInTheMeantimeIsNotRemoved(t *testing.T) {
	l := newLibrary(t, "order-1-a", "order-2-b", "order-3-c", "order-4-d")
	look := func(day int) Portion {
		l.now = noon.Add(time.Duration(day) * eon)
		p, err := l.Sweep(KindManifests, l.cutoffs()).Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := look(0)
	l.begin("late", 1, edda.StatusRunning)
	l.commit(t, Change{Remove: p.Removal})
	same(t, "marks", l.left(), "order-1-a order-2-b* order-3-c* order-4-d")
	l.now = noon.Add(11 * eon)
	l.sweep(t, KindHistory, Cutoffs{History: noon.Add(5 * eon)})
	p = look(11)
	same(t, "to go", len(p.Texts), 2)
	l.begin("later", 2, edda.StatusRunning)
	l.keep("order-3-c", noon) // adopted anew: the mark is gone
	l.commit(t, Change{Remove: p.Removal})
	same(t, "they stay", l.left(), "order-1-a order-2-b* order-3-c order-4-d")
}

// TestTheFirstTextOfAVersionNamesTheOthers: so it is kept as long as they are.
func TestTheFirstTextOfAVersionNamesTheOthers(t *testing.T) {
	l := newLibrary(t, "order-1-a", "order-1-b", "order-1-c")
	l.gc(0)
	same(t, "marked", l.left(), "order-1-a order-1-b* order-1-c")
	same(t, "went", l.gc(11), 1)
	same(t, "left", l.left(), "order-1-a order-1-c")
	l.keep("order-2-d", noon.Add(time.Hour))
	l.gc(12)
	same(t, "one by one", l.gc(30), 1)
	l.gc(31)
	same(t, "and the first", l.gc(50), 1)
	same(t, "the newest", l.left(), "order-2-d")
}

func TestManyManifestsAreRemovedInPortions(t *testing.T) {
	l := newLibrary(t)
	for i := range 5 * maxGoneTexts {
		l.commit(t, Change{Manifests: []edda.Manifest{{Saga: "order", Version: i + 1, Hash: "h", Loaded: noon}}})
	}
	l.gc(0)
	l.now = noon.Add(11 * eon)
	s := l.Sweep(KindManifests, l.cutoffs())
	gone := 0
	for !s.Done() {
		p, err := s.Next(context.Background())
		if err != nil || len(p.Texts) > maxGoneTexts || p.Rows != len(p.Texts) {
			t.Fatalf("a portion of %d texts, %d rows: %v", len(p.Texts), p.Rows, err)
		}
		l.commit(t, Change{Remove: p.Removal})
		gone += p.Rows
	}
	same(t, "went", gone, 5*maxGoneTexts-1)
	// Looking alone marks nothing.
	l.keep("order-1-z", noon)
	look, err := l.Sweep(KindManifests, Cutoffs{}).Next(context.Background())
	if err != nil || !reflect.DeepEqual(look.Removal, Removal{}) {
		t.Errorf("kept for ever: %+v, %v", look, err)
	}
}
