package cluster

import (
	"strings"
	"testing"
)

// mostStates bounds an exploration that does not end.
const mostStates = 10_000_000

type scope struct {
	name  string
	model model
}

func TestEveryStateIsSafe(t *testing.T) {
	explored(t, []scope{
		{"two nodes", model{nodes: 2, takes: 2, records: 1, parts: 1}},
		{"records in parts", model{nodes: 2, takes: 1, records: 2, parts: 2}},
		{"crashes, and owners that do not stop", model{nodes: 2, takes: 1, records: 2, parts: 1, crashes: 1, retries: 1}},
		{"three nodes", model{nodes: 3, takes: 1, records: 2, parts: 1}},
	})
}

// explored explores the protocol in every scope. Nothing acknowledged may be lost, nothing may be
// twice in the log, and no record of an older owner may stand behind the Own record of a newer one.
func explored(t *testing.T, scopes []scope) {
	for _, s := range scopes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			md := s.model
			md.rules = protocol
			f := md.explore(mostStates)
			t.Logf("%d states; in %d of them two nodes believe that they own the log", f.states, f.shared)
			tell(t, f)
			if f.broken != "" {
				t.Errorf("violated: %s", f.broken)
			}
			if f.cut || f.most < md.records || f.shared == 0 {
				t.Errorf("the exploration reaches too little: at most %d records are acknowledged; it was cut: %v", f.most, f.cut)
			}
		})
	}
}

func tell(t *testing.T, f found) {
	t.Helper()
	for i, line := range f.example {
		t.Logf("%2d. %s", i+1, line)
	}
}

// The variations are other protocols that look as good. The exploration refutes each with a shortest
// example; with -v the test says it in words.
func TestVariationsAreRefuted(t *testing.T) {
	tests := []struct {
		name   string
		rules  rules
		broken string
	}{
		{"two in flight, by the last sequence of the subject",
			rules{depth: 2, subject: true}, "of the only owner is refused"},
		{"the same, and what is refused is sent again",
			rules{depth: 2, subject: true, patient: true}, "behind the Own record"},
		{"two in flight, by predicted sequences", rules{depth: 2}, "behind the Own record"},
		{"the same, and readers filter by epoch", rules{depth: 2, filter: true}, "acknowledged record is lost"},
		{"the same, and acknowledgements count in order",
			rules{depth: 2, filter: true, inOrder: true}, "chain of checksums is broken"},
		{"a read of the leader instead of an Own record",
			rules{depth: 1, noOwn: true}, "has not read an acknowledged record"},
		{"a lease as the only fence, and a read of the true end",
			rules{depth: 1, noOwn: true, freshest: true}, "has not read an acknowledged record"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			md := model{nodes: 2, takes: 1, records: 2, parts: 1, rules: tt.rules}
			f := md.explore(mostStates)
			t.Logf("after %d states: %s", f.states, f.broken)
			tell(t, f)
			if !strings.Contains(f.broken, tt.broken) {
				t.Errorf("found %q, want %q", f.broken, tt.broken)
			}
		})
	}
}
