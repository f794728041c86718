package engine

import (
	"slices"
	"strings"
	"sync"

	"edda"
)

// Info describes a running engine.
type Info struct {
	Positions []StreamPosition `json:"positions"`
	// InFlight counts inputs that are evaluated and not yet durable.
	InFlight int `json:"in_flight"`
	// Behind lists the sagas that are behind the streams.
	Behind   []Behind `json:"behind,omitempty"`
	Draining bool     `json:"draining,omitempty"`
}

// StreamPosition is how far one stream is durably handled.
type StreamPosition struct {
	edda.Checkpoint
	// End is the sequence of the last message meant for the sagas, by the latest end offsets.
	// Lag is its distance from the position, other messages included.
	End uint64 `json:"end"`
	Lag uint64 `json:"lag"`
}

// status is the state that other goroutines may read. The loop and the end poller write it.
type status struct {
	mu       sync.Mutex // guards all below
	streams  map[string]StreamPosition
	inFlight int
	behind   []Behind
	draining bool
	failure  error
}

func newStatus() *status { return &status{streams: map[string]StreamPosition{}} }

func (s *status) setPositions(positions []edda.Checkpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range positions {
		p := s.streams[c.Stream]
		p.Checkpoint = c
		s.streams[c.Stream] = p
	}
}

func (s *status) setEnds(ends []End) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range ends {
		p := s.streams[end.Stream]
		p.Stream, p.End = end.Stream, end.Need
		s.streams[end.Stream] = p
	}
}

func (s *status) setInFlight(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = n
}

func (s *status) setBehind(all []Behind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = all
}

func (s *status) setDraining() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

func (s *status) setFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

func (s *status) health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

func (s *status) info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := Info{InFlight: s.inFlight, Behind: s.behind, Draining: s.draining}
	for _, p := range s.streams {
		if p.End > p.Seq {
			p.Lag = p.End - p.Seq
		}
		i.Positions = append(i.Positions, p)
	}
	slices.SortFunc(i.Positions, func(a, b StreamPosition) int { return strings.Compare(a.Stream, b.Stream) })
	return i
}
