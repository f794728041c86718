package node

import (
	"testing"

	"edda/cluster"
)

// TestTheLogIsTrimmedBehindTheSlowestCopy: not before an hour, unless it is too large.
func TestTheLogIsTrimmedBehindTheSlowestCopy(t *testing.T) {
	has := func(lsn uint64) cluster.Member { return cluster.Member{Beat: cluster.Beat{LSN: lsn}} }
	of := func(n int) (marks []cluster.Mark) { // a record in each interval
		for i := range n {
			marks = append(marks, cluster.Mark{LSN: uint64(i + 1)})
		}
		return marks
	}
	const hour = int(trimAfter / trimEvery)
	for _, tt := range []struct {
		name  string
		marks []cluster.Mark
		bytes int
		nodes []cluster.Member
		want  int
	}{
		{"less than an hour", of(hour), 10, nil, 0},
		{"no other node", of(hour + 3), 10, nil, 3},
		{"copies that have all", of(hour + 3), 10, []cluster.Member{has(99), has(3)}, 3},
		{"a slow copy", of(hour + 3), 10, []cluster.Member{has(99), has(2)}, 2},
		{"a copy that needs the beginning", of(hour + 3), 10, []cluster.Member{has(0), has(1)}, 1},
		{"a node that copies the store", of(hour + 3), 10, []cluster.Member{has(99), {Beat: cluster.Beat{Needs: 2}}}, 2},
		{"a node without a copy", of(hour + 1), 10, []cluster.Member{has(0)}, 1},
		{"too large", of(9), 101, []cluster.Member{has(1)}, 5},
		{"too large at once", of(1), 101, []cluster.Member{has(1)}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := trimmable(tt.marks, tt.bytes, 100, tt.nodes); got != tt.want {
				t.Errorf("%d marks are not needed, want %d", got, tt.want)
			}
		})
	}
}
