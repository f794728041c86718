package stream

import (
	"sync"

	"edda"
)

// maxExpected copies are remembered that have not come back yet: a few seconds of
// a busy process. One that is forgotten comes in as a duplicate.
const maxExpected = 1 << 14

// copies remembers the results that this process has applied by itself, until
// their copies come back from the stream: each is let pass once.
type copies struct {
	mu       sync.Mutex // guards what follows
	expected map[string]bool
	order    []string // oldest first; what came back is not in expected any more
	ever     bool     // whether there was one
}

func newCopies() *copies { return &copies{expected: map[string]bool{}} }

func (c *copies) expect(subject string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.order) >= maxExpected || len(c.order) > 0 && !c.expected[c.order[0]] {
		delete(c.expected, c.order[0])
		c.order = c.order[1:]
	}
	c.expected[subject], c.ever = true, true
	c.order = append(c.order, subject)
}

// forget expects none of them any more.
func (c *copies) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.expected)
	c.order = nil
}

// any tells whether copies come at all: one that came back is not read yet for a
// moment.
func (c *copies) any() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ever
}

// back tells whether the message is a copy, which is then expected no more.
func (c *copies) back(subject string) bool {
	if c == nil { // no results come there
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.expected[subject]
	delete(c.expected, subject)
	return was
}

// Expect says that a result was applied whose copy is about to be published: it is
// left out of what Fetch gives. It is told before the copy can come back as a rule;
// where not, that comes in as any result does, and the instance knows it.
func (s *Source) Expect(w edda.Work) {
	if s.rests() { // nothing comes back
		return
	}
	subject, err := s.codec.Build(Subject{Tenant: w.From.Tenant, Family: FamilyResult, Name: w.Name, ID: w.CommandID})
	if err == nil { // else it is never published
		s.copies.expect(subject)
	}
}
