package node

import (
	"context"
	"slices"
	"testing"

	"go.uber.org/zap"

	"edda/cluster"
	"edda/internal/testkit"
	"edda/standby"
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
		{"too large", of(9), 101, []cluster.Member{has(1)}, 4},
		{"too large in the first minute", of(1), 101, []cluster.Member{has(1)}, 0},
		{"too large in the second minute", of(2), 101, []cluster.Member{has(1)}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := trimmable(tt.marks, tt.bytes, 100, tt.nodes); got != tt.want {
				t.Errorf("%d marks are not needed, want %d", got, tt.want)
			}
		})
	}
}

// trimmedLog is a log of 101 bytes that notes what is appended and where it is trimmed. appends is the error of each append.
type trimmedLog struct {
	cluster.Log
	appends error
	did     []string
}

func (l *trimmedLog) size(context.Context) (int, error) { return 101, nil }

func (l *trimmedLog) Append(_ context.Context, after cluster.Mark, r cluster.Record) (cluster.Mark, error) {
	l.did = append(l.did, string(r.Kind))
	return after, l.appends
}

func (l *trimmedLog) Trim(context.Context, cluster.Mark) error {
	l.did = append(l.did, "trim")
	return nil
}

// TestAFormerOwnerTrimsNothing: the log may have begun again behind its back, and its marks are beyond the end then.
func TestAFormerOwnerTrimsNothing(t *testing.T) {
	marks := []cluster.Mark{{Seq: 70}, {Seq: 80}, {Seq: 90}}
	for name, tt := range map[string]struct {
		max     int // bytes of the log
		appends error
		did     []string
	}{
		"small enough":   {200, nil, nil},
		"too large":      {100, nil, []string{"keep", "trim"}},
		"not its own":    {100, cluster.ErrFenced, []string{"keep"}},
		"gone on by now": {100, cluster.ErrMoved, []string{"keep"}},
	} {
		l := &trimmedLog{appends: tt.appends}
		st := &stay{log: zap.NewNop(), bytes: l.size, shipped: l}
		st.settings.Cluster.LogMax = tt.max
		st.shipper.Store(standby.NewShipper(t.Context(), l, marks[2], "n1.1", 1))
		_, err := st.trimOnce(t.Context(), marks)
		if tt.appends != nil {
			testkit.WantError(t, err, tt.appends)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(l.did, tt.did) {
			t.Errorf("%s: it did %q, want %q", name, l.did, tt.did)
		}
	}
}
