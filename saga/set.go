package saga

import (
	"fmt"
	"sort"

	"edda"
)

// Set is every program a process runs: the newest version of each saga and the
// older ones that unfinished instances still need. It is immutable and safe for
// concurrent use; a reload builds another.
type Set struct {
	names    []string
	versions map[string][]*Program // newest first
}

// NewSet groups programs by saga; the highest version is the newest. Two
// programs of one version must be the same text, but for programs marked as
// older by their place: of one version the first given is the newest.
func NewSet(programs ...*Program) (*Set, error) {
	s := &Set{versions: map[string][]*Program{}}
	for _, p := range programs {
		for _, other := range s.versions[p.Saga()] {
			if other.Version() == p.Version() && other.Hash() == p.Hash() {
				return nil, fmt.Errorf("saga %s version %d is given twice", p.Saga(), p.Version())
			}
		}
		s.versions[p.Saga()] = append(s.versions[p.Saga()], p)
	}
	for name, list := range s.versions {
		sort.SliceStable(list, func(i, j int) bool { return list[i].Version() > list[j].Version() })
		s.names = append(s.names, name)
	}
	sort.Strings(s.names)
	return s, nil
}

// Programs lists all, by saga and newest version first.
func (s *Set) Programs() []*Program {
	var out []*Program
	for _, name := range s.names {
		out = append(out, s.versions[name]...)
	}
	return out
}

// Newest finds the newest version of a saga, or nil.
func (s *Set) Newest(saga string) *Program {
	if list := s.versions[saga]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// program finds the version that an instance runs: the very text it began
// with, else another text of that version.
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
