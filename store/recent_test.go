package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"edda"
)

func TestAnInstanceThatWasJustCommittedIsNotReadAgain(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	one, ended := step(key("1"), 1), step(key("2"), 1)
	ended.Instance.Status = edda.StatusDone
	db.commit(t, Change{Transitions: []edda.Transition{step(key("1"), 0), one, ended}})
	if got := db.cell(t, key("1")).Instance; got != one.Instance {
		t.Errorf("%+v was decoded", got)
	}
	if got := db.cell(t, key("2")).Instance; got == ended.Instance {
		t.Error("an instance that has ended is kept in memory")
	}
	same(t, "the one that ended", db.cell(t, key("2")).Instance, ended.Instance)
}

// A view that was opened before a commit does not see it, whatever is kept in memory.
func TestAViewHasTheInstancesOfItsCommit(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	first, second := step(key("1"), 1), step(key("1"), 2)
	db.commit(t, Change{Transitions: []edda.Transition{first}})
	before := must(db.View())
	defer before.Close()
	db.commit(t, Change{Transitions: []edda.Transition{second}})
	same(t, "before", must(before.Cell(key("1"))).Instance, first.Instance)
	same(t, "after", db.cell(t, key("1")).Instance, second.Instance)
}

// A commit can be seen a moment before the committer goes on.
func TestACommitIsSeenAsSoonAsItIsPublished(t *testing.T) {
	db := must(Open(t.TempDir(), Options{initialMap: 1 << 20}))
	defer func() { _ = db.Close() }()
	seen := func() edda.Cell {
		view := must(db.View())
		defer view.Close()
		return must(view.Cell(key("1")))
	}
	db.commitGroup([]*job{{change: must(encodeChange(Change{Transitions: []edda.Transition{step(key("1"), 1)}}, 0)), done: func(error) {}}})
	same(t, "before", seen().Instance, instance(key("1"), 1))
	if _, err := db.write([]*job{{change: must(encodeChange(Change{Transitions: []edda.Transition{step(key("1"), 2)}}, 0))}}); err != nil {
		t.Fatal(err)
	}
	same(t, "after", seen().Instance, instance(key("1"), 2))
}

// All keys are always of one revision, to whoever looks while commits go on.
func TestViewsBesideCommitsAreConsistent(t *testing.T) {
	db := open(t, t.TempDir(), Options{noSync: true, foldAt: 64 << 10})
	const keys, revisions = 4, 300
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				view := must(db.View())
				var seen []uint64
				for i := range keys {
					if in := must(view.Cell(key(fmt.Sprint(i)))).Instance; in != nil {
						seen = append(seen, in.Revision)
					}
				}
				view.Close()
				if len(seen) > 0 && (len(seen) != keys || strings.Count(fmt.Sprint(seen), fmt.Sprint(seen[0])) < keys) {
					t.Errorf("one view has the revisions %v", seen)
					return
				}
			}
		})
	}
	for r := range revisions {
		var c Change
		for i := range keys {
			c.Transitions = append(c.Transitions, step(key(fmt.Sprint(i)), uint64(r+1)))
		}
		db.commit(t, c)
	}
	close(stop)
	readers.Wait()
}

func TestInstancesInMemoryAreBounded(t *testing.T) {
	r := newRecent()
	const size, n = 3000, 4 * recentBytes / 3000
	kept := func() (n int) {
		for _, s := range r.young {
			n += s.bytes
		}
		for _, s := range r.old {
			n += s.bytes
		}
		return n
	}
	for i := range n {
		k := key(fmt.Sprint(i))
		r.learn([]latest{{key: k, instance: instance(k, 1), bytes: size}}, uint64(i))
		if got := r.find(k, uint64(i)); got == nil {
			t.Fatalf("instance %d is not kept", i)
		}
	}
	if bytes := kept(); bytes > recentBytes || bytes < recentBytes/2 {
		t.Errorf("%d bytes are kept", bytes)
	}
	for i := range n {
		r.forget([]latest{{key: key(fmt.Sprint(i))}})
	}
	if bytes := kept(); bytes != 0 || r.bytes != 0 {
		t.Errorf("%d bytes are left, %d as counted", bytes, r.bytes)
	}
}
