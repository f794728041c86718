package store

import (
	"math/rand/v2"
	"testing"
	"time"

	"edda"
)

// TestACommandBetweenThoseThatHaveAClaimIsNotLookedUp, where this process has seen all
// claims of its time; at the next start it is, and so is one whose claim has gone.
func TestACommandBetweenThoseThatHaveAClaimIsNotLookedUp(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	early, claimed, same, later := commandAt(noon, 1), commandAt(noon.Add(time.Second), 2), commandAt(noon.Add(time.Second), 3), commandAt(noon.Add(time.Minute), 4)
	check := func(when string, want map[string]bool) {
		t.Helper()
		for _, id := range []string{early, claimed, same, later, "c"} {
			if got := db.hours.recent.lacks(recentOf(id)); got != want[id] {
				t.Errorf("%s: %s surely has no claim: %v", when, id, got)
			}
			if _, found, err := db.Claim("acme", id); err != nil || found && want[id] {
				t.Errorf("%s: %s is found: %v, %v", when, id, found, err)
			}
		}
	}
	check("in a new store", map[string]bool{early: true, claimed: true, same: true, later: true})
	db.commit(t, Change{Claims: []edda.Claim{
		{Tenant: "acme", CommandID: claimed, Claimed: noon}, {Tenant: "acme", CommandID: later, Claimed: noon}, {Tenant: "acme", CommandID: "c", Claimed: noon},
	}})
	check("with two of them", map[string]bool{early: true, same: true})
	db.commit(t, Change{Remove: Removal{Claims: ClaimPlace{Hour: noon.Add(time.Hour)}}})
	check("with none any more", map[string]bool{early: true, same: true})
	db.commit(t, Change{Claims: []edda.Claim{{Tenant: "acme", CommandID: claimed, Claimed: noon}}})
	db.stop()
	db = open(t, dir, Options{})
	check("at the next start", nil)
	if next := commandAt(noon.Add(time.Hour), 5); !db.hours.recent.lacks(recentOf(next)) {
		t.Error("a command of the next hour is looked up")
	}
}

// TestNoClaimIsForgotten: it is known of, or whoever asks is told to look, however many
// there are and in whatever order they come.
func TestNoClaimIsForgotten(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var c recentClaims
	var all []string
	for at := noon; len(all) < 5*maxGeneration; at = at.Add(time.Millisecond) {
		some := make([]recentCommand, 0, 64)
		for n := range cap(some) {
			id := commandAt(at.Add(-time.Duration(random.IntN(500))*time.Millisecond), byte(n))
			all, some = append(all, id), append(some, recentOf(id))
		}
		c.add(some)
	}
	for _, id := range all {
		if c.lacks(recentOf(id)) {
			t.Fatalf("%s has a claim", id)
		}
	}
	if n := max(len(c.newer.ids), len(c.older.ids)); n > maxGeneration {
		t.Errorf("%d are kept in a half", n)
	}
	last := all[len(all)-1]
	if other := last[:len(last)-2] + "ff"; !c.lacks(recentOf(other)) {
		t.Errorf("%s, of the time of the latest, is looked up", other)
	}
	if first := all[0][:len(last)-2] + "ff"; c.lacks(recentOf(first)) {
		t.Errorf("%s, of a time that is forgotten, is not looked up", first)
	}
}
