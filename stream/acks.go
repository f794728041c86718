package stream

import "sync"

// acks remembers where to acknowledge the messages of one stream that were read
// and are not yet handled. Acknowledging one acknowledges all before it.
type acks struct {
	mu      sync.Mutex // guards what follows
	waiting []receipt  // in stream order
	kept    int        // of the waiting ones, how many went to the engine
	handled uint64     // everything up to here is handled
}

// receipt is one message that was read.
type receipt struct {
	seq   uint64
	reply string
	kept  bool // false: not meant for us, nobody will speak of it again
}

// add notes a message, and returns where to acknowledge at once, if anywhere:
// what is not ours need not wait for anybody when nothing of ours is before it.
func (a *acks) add(r receipt) (reply string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !r.kept && a.kept == 0 {
		a.waiting = a.waiting[:0]
		return r.reply
	}
	a.waiting = append(a.waiting, r)
	if r.kept {
		a.kept++
	}
	return ""
}

// done returns where to acknowledge once everything up to seq is handled: the
// last message up to there, or those behind it that are not ours.
func (a *acks) done(seq uint64) (reply string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handled = max(a.handled, seq)
	n := 0
	for n < len(a.waiting) && (a.waiting[n].seq <= seq || !a.waiting[n].kept) {
		if a.waiting[n].kept {
			a.kept--
		}
		n++
	}
	if n == 0 {
		return ""
	}
	reply = a.waiting[n-1].reply
	a.waiting = a.waiting[:copy(a.waiting, a.waiting[n:])]
	return reply
}

// handledTo is up to where everything is handled.
func (a *acks) handledTo() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handled
}

// again returns where to acknowledge a message that was sent again: nowhere
// while it is being handled, at once when its ack got lost.
func (a *acks) again(r receipt) (reply string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.seq > a.handled {
		return ""
	}
	return r.reply
}

// forget drops all receipts: their consumer is gone.
func (a *acks) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting, a.kept = a.waiting[:0], 0
}
