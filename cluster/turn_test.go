package cluster

import (
	"testing"
	"time"
)

// TestTurn: who tries to take the log over, and when.
func TestTurn(t *testing.T) {
	dead := func(id string) Member { return Member{Node: Node{ID: id, Dead: true}, Beat: Beat{Run: id + ".1"}} }
	follows := func(id string, lsn uint64) Member {
		return Member{Node: Node{ID: id}, Beat: Beat{Run: id + ".1", Following: true, LSN: lsn}}
	}
	alive := func(id, run string) Member { return Member{Node: Node{ID: id}, Beat: Beat{Run: run}} }
	owner := Ownership{Run: "a.1"}
	for _, tt := range []struct {
		name  string
		s     Standing
		after time.Duration
		try   bool
	}{
		{"the owner lives", Standing{Self: "b", Owner: owner, Others: []Member{alive("a", "a.1")}}, 0, false},
		{"the owner has not been heard yet", Standing{Self: "b", Owner: owner}, 0, false},
		{"the owner is dead", Standing{Self: "b", Owner: owner, Others: []Member{dead("a")}}, 0, true},
		{"its node is in a later run", Standing{Self: "b", Owner: owner, Others: []Member{alive("a", "a.2")}}, 0, true},
		{"the beat of its node is old", Standing{Self: "b", Owner: Ownership{Run: "a.2"}, Others: []Member{alive("a", "a.1")}}, 0, false},
		{"it was this node", Standing{Self: "a", Owner: owner, Others: []Member{follows("b", 9)}}, 0, true},
		{"nobody owned it, and this node did not found", Standing{Self: "b", Founder: "a"}, 0, false},
		{"nobody owned it, and this node founded", Standing{Self: "a", Founder: "a"}, 0, true},
		{"another one has more", Standing{Self: "b", LSN: 8, Owner: owner, Others: []Member{dead("a"), follows("c", 9)}}, turnStep, true},
		{"another one has as much, and a later name", Standing{Self: "b", LSN: 9, Owner: owner, Others: []Member{dead("a"), follows("c", 9)}}, 0, true},
		{"two have as much, and earlier names",
			Standing{Self: "d", LSN: 9, Owner: owner, Others: []Member{dead("a"), follows("b", 9), follows("c", 9)}}, 2 * turnStep, true},
		{"another one has more, and is dead", Standing{Self: "b", LSN: 8, Owner: owner, Others: []Member{dead("a"), dead("c")}}, 0, true},
		{"another one has no copy yet", Standing{Self: "c", Owner: owner, Others: []Member{dead("a"), alive("b", "b.1")}}, 0, true},
		{"handed over to nobody", Standing{Self: "b", Owner: Ownership{Run: "a.1", Sealed: true}, Others: []Member{alive("a", "a.1")}}, 0, true},
		{"handed over to this node", Standing{Self: "b", Owner: Ownership{Run: "a.1", Sealed: true, Heir: "b"}, Others: []Member{follows("c", 9)}}, 0, true},
		{"handed over to another one, which has less",
			Standing{Self: "b", LSN: 9, Owner: Ownership{Run: "a.1", Sealed: true, Heir: "c"}, Others: []Member{follows("c", 8)}}, heirStep, true},
		{"handed over to another one, and a third one has more",
			Standing{Self: "b", LSN: 8, Owner: Ownership{Run: "a.1", Sealed: true, Heir: "c"}, Others: []Member{follows("c", 8), follows("d", 9)}}, heirStep + turnStep, true},
		{"handed over to another one, which is dead",
			Standing{Self: "b", LSN: 9, Owner: Ownership{Run: "a.1", Sealed: true, Heir: "c"}, Others: []Member{dead("c")}}, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if after, try := tt.s.Turn(); after != tt.after || try != tt.try {
				t.Errorf("tries: %v, after %s; want %v, after %s", try, after, tt.try, tt.after)
			}
		})
	}
}
