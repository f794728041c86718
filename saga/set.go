package saga

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"edda"
)

// Set has every program that a process runs: the newest version of each saga, and the older ones
// that unfinished instances still need. It is immutable and safe for concurrent use; a reload
// builds another.
type Set struct {
	names    []string
	versions map[string][]*Program // newest first, then those added by Keep
	numbers  map[string][]int      // of the versions, in that order
	ended    map[string]bool       // sagas with kept versions only: nothing starts
}

// NewSet groups programs by saga; the highest version is the newest. Of several texts of one
// version the first given is the newest. The same text twice is an error.
func NewSet(programs ...*Program) (*Set, error) {
	return (&Set{}).add(programs)
}

// Keep returns a set with older programs that unfinished instances run and that are not loaded any
// more. No new instance starts on them.
func (s *Set) Keep(programs ...*Program) (*Set, error) {
	out, err := s.add(programs)
	if err != nil {
		return nil, err
	}
	for name := range out.versions {
		out.ended[name] = len(s.versions[name]) == 0 || s.ended[name]
	}
	return out, nil
}

// add returns the set with more programs after its own.
func (s *Set) add(programs []*Program) (*Set, error) {
	out := &Set{versions: map[string][]*Program{}, numbers: map[string][]int{}, ended: map[string]bool{}}
	for _, p := range programs {
		list := slices.Concat(out.versions[p.Saga()], s.versions[p.Saga()])
		for _, other := range list {
			if other.Version() == p.Version() && other.Hash() == p.Hash() {
				return nil, fmt.Errorf("saga %s version %d is given twice", p.Saga(), p.Version())
			}
		}
		out.versions[p.Saga()] = append(out.versions[p.Saga()], p)
	}
	for _, list := range out.versions {
		slices.SortStableFunc(list, func(a, b *Program) int { return cmp.Compare(b.Version(), a.Version()) })
	}
	for name, list := range s.versions {
		out.versions[name] = slices.Concat(list, out.versions[name])
	}
	out.names = slices.Sorted(maps.Keys(out.versions))
	for _, p := range out.Programs() {
		out.numbers[p.Saga()] = append(out.numbers[p.Saga()], p.Version())
	}
	return out, nil
}

// Starts returns the version that new instances start on; nil if all versions are kept ones.
func (s *Set) Starts(saga string) *Program {
	if s.ended[saga] {
		return nil
	}
	return s.Newest(saga)
}

// Programs lists all programs, by saga and newest version first.
func (s *Set) Programs() []*Program {
	var out []*Program
	for _, name := range s.names {
		out = append(out, s.versions[name]...)
	}
	return out
}

// Newest returns the newest version of a saga, or nil.
func (s *Set) Newest(saga string) *Program {
	if list := s.versions[saga]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// program returns the version of an instance: the text it started with, or else another text of
// that version.
func (s *Set) program(in *edda.Instance) *Program {
	var same *Program
	for _, p := range s.versions[in.Key.Saga] {
		switch {
		case p.Version() == in.Version && p.Hash() == in.Hash:
			return p
		case p.Version() == in.Version && same == nil:
			same = p
		}
	}
	return same
}
