//go:build !race && !quick

package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"
)

// TestReadsOfADamagedPageFail: other reads continue.
func TestReadsOfADamagedPageFail(t *testing.T) {
	good := soundFile(t)
	r := rand.New(rand.NewPCG(2, uint64(len(good))))
	noticed := 0
	for _, bit := range places(r, len(good), 100) {
		data := bytes.Clone(good)
		data[bit/8] ^= 1 << (bit % 8)
		within(t, fmt.Sprintf("bit %d", bit), func() {
			if served(t, data) {
				noticed++
			}
		})
	}
	for page, data := range led(good) {
		within(t, fmt.Sprintf("page %d", page), func() { served(t, data) })
	}
	if noticed < 20 {
		t.Errorf("only %d of 100 were noticed", noticed)
	}
}

// TestOneFlippedBitKillsTheDoctor: bbolt's check looked beyond the end of the file in a
// goroutine of its own, and the process died with SIGBUS.
func TestOneFlippedBitKillsTheDoctor(t *testing.T) {
	good := soundFile(t)
	r := rand.New(rand.NewPCG(1, uint64(len(good))))
	said := 0
	for _, bit := range places(r, len(good), 300) {
		data := bytes.Clone(good)
		data[bit/8] ^= 1 << (bit % 8)
		within(t, fmt.Sprintf("bit %d", bit), func() {
			if examined(t, data) {
				said++
			}
		})
	}
	if said < 50 { // the others hit free pages and values that only their owner can judge
		t.Errorf("only %d of 300 were noticed", said)
	}
}

// TestEveryWrongPageReferenceIsFound moves the key of the first element of each
// page in use by a gigabyte: so the process died.
func TestEveryWrongPageReferenceIsFound(t *testing.T) {
	good := soundFile(t)
	if found := pagesWrong(t, good); len(found) > 0 {
		t.Fatalf("the file was sound: %v", found)
	}
	tried := 0
	for page, data := range led(good) {
		found := pagesWrong(t, data)
		if said := fmt.Sprint(found); len(found) > 0 && !strings.Contains(said, "is damaged (") { // so a start refuses it
			tried++
			if want := fmt.Sprintf("page %d: the key of element 0 lies outside of it", page); !strings.Contains(fmt.Sprint(found), want) {
				t.Errorf("found %v, want %s", found, want)
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d pages were tried", tried)
	}
}

// TestReadsAreTheSameWithAndWithoutAWAL: changes are committed to three stores: one never flushes,
// one flushes a little with every commit, and one flushes everything. All reads are the same, and
// no check finds anything.
func TestReadsAreTheSameWithAndWithoutAWAL(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		logged := open(t, t.TempDir(), Options{noSync: true})
		folding := open(t, t.TempDir(), Options{noSync: true, flushAt: 4 << 10})
		folded := open(t, t.TempDir(), Options{noSync: true, flushAt: 1})
		all := []*opened{logged, folding, folded}
		defer func() {
			for _, db := range all {
				db.stop()
			}
		}()
		g := &generator{t: r, m: newModel(), again: map[string]bool{}}
		for range rapid.IntRange(1, 12).Draw(r, "changes") {
			g.again = map[string]bool{}
			c := g.change(must(logged.Outbox(ulid.ULID{}, 1000)))
			for _, db := range all {
				db.commit(t, c)
			}
			folded.flush(t)
			sameLayouts(t, r, all)
		}
		for _, db := range all {
			db.flush(t)
			compare(r, db, g.m)
		}
		sameLayouts(t, r, all)
	})
}
