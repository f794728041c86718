package store

import (
	"sync"

	"edda"
)

// recentBytes bounds the instances that are kept in memory, as they take it in the
// file: those of some thousand orders. Most instances change again soon after they
// changed, and what was encoded a moment ago need not be decoded.
const recentBytes = 4 << 20

// recent are instances as the last commits left them, each with the number of the
// commit that wrote it. A snapshot takes one of a commit that it has: nothing changed
// it since, or it would not be here as it was. For that the committer forgets what a
// commit changes before anybody can see the commit, and learns it again after that.
//
// There are two generations, so that no order of use need be kept: who is learnt comes
// to the younger, and when that is full it becomes the older, and the older goes.
// Instances that have ended are not kept.
type recent struct {
	mu         sync.Mutex // guards all below
	young, old map[edda.Key]latest
	bytes      int // of the younger
}

// latest is what a commit made of an instance; it is never changed. Nil: it is not
// there any more.
type latest struct {
	key      edda.Key
	instance *edda.Instance
	commit   uint64
	bytes    int
}

func newRecent() *recent {
	return &recent{young: map[edda.Key]latest{}, old: map[edda.Key]latest{}}
}

// find is the instance of a key in the snapshot of a commit; nil: the file knows.
func (r *recent) find(k edda.Key, commit uint64) *edda.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.young[k]
	if !ok {
		s = r.old[k]
	}
	if s.commit > commit {
		return nil
	}
	return s.instance
}

// forget comes before a commit, and learn after it.
func (r *recent) forget(changed []latest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range changed {
		r.drop(changed[i].key)
	}
}

func (r *recent) learn(changed []latest, commit uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range changed {
		r.drop(s.key) // it may have been written twice
		if s.instance == nil || s.instance.Status.Finished() {
			continue
		}
		if r.bytes += s.bytes; r.bytes > recentBytes/2 {
			r.young, r.old, r.bytes = r.old, r.young, s.bytes
			clear(r.young)
		}
		s.commit = commit
		r.young[s.key] = s
	}
}

func (r *recent) drop(k edda.Key) {
	if s, ok := r.young[k]; ok {
		r.bytes -= s.bytes
		delete(r.young, k)
		return
	}
	delete(r.old, k)
}
