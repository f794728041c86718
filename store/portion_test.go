package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"edda"
)

// maxPortionBytes bounds what one portion of a clean-up may write: commits that
// wait behind it wait for these bytes and one sync. They are counted, not timed, so
// that it says the same on every machine. Instances and history have the most of them.
const maxPortionBytes = 64 << 10

// TestAPortionOfACleanUpWritesLittle: also if its rows are scattered over the store.
func TestAPortionOfACleanUpWritesLittle(t *testing.T) {
	clock := noon
	db := open(t, t.TempDir(), Options{noSync: true, Now: func() time.Time { return clock }})
	const instances = 8_000
	for part := range slices.Chunk(slices.Collect(upTo(instances)), 200) {
		var c Change
		for _, i := range part {
			id := fmt.Sprintf("%016x", uint64(i)*0x9E3779B97F4A7C15)
			c.Transitions = append(c.Transitions, finished(key(id), 1, edda.StatusDone))
			c.Claims = append(c.Claims, edda.Claim{Tenant: "acme", CommandID: id, Claimed: noon, Done: true})
			c.Dead = append(c.Dead, edda.DeadLetter{ID: "d" + id, Time: noon.Add(time.Duration(i) * time.Millisecond), Reason: edda.DeadUnmatched})
			c.Audits = append(c.Audits, Audit{Time: noon, By: "ann", Verb: "retry", Key: key(id)})
		}
		db.commit(t, c)
		clock = clock.Add(time.Second) // so that what expires next lies anywhere
	}
	for n := range 40 {
		db.commit(t, Change{Manifests: []edda.Manifest{{Saga: "order", Version: n + 1, Hash: "h", Loaded: noon, Idle: noon}}})
	}
	clock = noon.Add(1000 * time.Hour)
	late := clock.Add(-time.Hour)
	cut := Cutoffs{Ended: func(string, edda.Status) time.Time { return late }, History: late, Claims: late, DeadLetters: late, Audits: late, Manifests: late}
	mostRows := map[RowKind]int{KindInstances: maxRemovedScattered, KindHistory: maxRemovedRows, KindClaims: maxRemovedRows, KindDeadLetters: maxRemovedScattered, KindAudit: maxRemovedRows, KindManifests: maxGoneTexts}
	for _, kind := range Kinds() {
		most, portions, rows, longest := uint64(0), 0, 0, time.Duration(0)
		for s := db.Sweep(kind, cut); !s.Done(); portions++ {
			p, err := s.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if p.Rows > mostRows[kind] || len(p.Forgotten) > maxRemovedScattered {
				t.Errorf("%s: %d rows and %d heads in one portion", kind, p.Rows, len(p.Forgotten))
			}
			began, before := time.Now(), db.file.Work().RecordBytes
			db.commit(t, Change{Remove: p.Removal})
			most, longest = max(most, db.file.Work().RecordBytes-before), max(longest, time.Since(began))
			rows += p.Rows
		}
		if most > maxPortionBytes || rows == 0 {
			t.Errorf("%s: a portion writes %d bytes, more than %d, of %d rows in all", kind, most, maxPortionBytes, rows)
		}
		t.Logf("%-12s %5d rows in %3d portions, at most %3d bytes and %s a portion, without a sync", kind, rows, portions, most, longest.Round(10*time.Microsecond))
	}
}

func upTo(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}
