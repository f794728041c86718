package store

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"edda"
	"edda/store/format"
)

// A claim that can be seen is found, also the first of its hour, and a moment before
// the committer goes on: a command that was called must not be called again.
func TestAClaimIsFoundAsSoonAsItIsPublished(t *testing.T) {
	db := must(Open(t.TempDir(), Options{initialMap: 1 << 20}))
	defer func() { _ = db.Close() }()
	for i := range 3 {
		claim := edda.Claim{Tenant: "acme", CommandID: "c", Claimed: noon.Add(time.Duration(-i) * time.Hour)}
		claim.CommandID += claim.Claimed.String()
		if _, err := db.write([]*job{{change: must(encodeChange(Change{Claims: []edda.Claim{claim}}, 0))}}); err != nil {
			t.Fatal(err)
		}
		if _, found, err := db.Claim("acme", claim.CommandID); !found || err != nil {
			t.Errorf("the claim of %s: found %v, %v", claim.Claimed, found, err)
		}
	}
}

// Hours whose claims have expired are not looked through for ever.
func TestHoursAreRemovedWithTheirClaims(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	claim := func(hour int) edda.Claim {
		return edda.Claim{Tenant: "acme", CommandID: "c" + time.Duration(hour).String(), Claimed: noon.Add(time.Duration(hour) * time.Hour)}
	}
	db.commit(t, Change{Claims: []edda.Claim{claim(0), claim(1), claim(2)}})
	same(t, "hours", len(db.hours.now.Load().hours), 3)
	db.commit(t, Change{Remove: Removal{Claims: ClaimPlace{Hour: noon.Add(2 * time.Hour)}}, Claims: []edda.Claim{claim(1)}})
	db.commit(t, Change{}) // the hours are looked at behind the answer
	same(t, "hours that are left", db.hours.now.Load().hours, []uint32{format.HourOf(noon) + 1, format.HourOf(noon) + 2})
	for hour, want := range []bool{false, true, true} {
		if _, found, err := db.Claim("acme", claim(hour).CommandID); found != want || err != nil {
			t.Errorf("claim %d: found %v, %v", hour, found, err)
		}
	}
}

// commandAt is an id as the sagas derive one.
func commandAt(at time.Time, n byte) string {
	id := uuid.UUID{6: 0x70, 8: 0x80, 15: n}
	for i, ms := 5, at.UnixMilli(); i >= 0; i, ms = i-1, ms>>8 {
		id[i] = byte(ms)
	}
	return id.String()
}

// TestACommandLaterThanAllClaimedOnesIsNotLookedUp: and every other one is, in any order of claims,
// with any time, after a restart, and after the claims of its hour were removed.
func TestACommandLaterThanAllClaimedOnesIsNotLookedUp(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	claim := func(id string, at time.Time) edda.Claim {
		return edda.Claim{Tenant: "acme", CommandID: id, Claimed: at}
	}
	first, second, early := commandAt(noon, 1), commandAt(noon.Add(time.Millisecond), 2), commandAt(noon.Add(-time.Hour), 3)
	later := commandAt(noon.Add(2*time.Millisecond), 4)
	check := func(when string, unasked []string, found ...string) {
		t.Helper()
		for _, id := range []string{first, second, early, later, "c", strings.ToUpper(second)} {
			_, got, err := db.Claim("acme", id)
			if err != nil || got != slices.Contains(found, id) {
				t.Errorf("%s: %s is found: %v, %v", when, id, got, err)
			}
			if got := db.hours.recent.lacks(recentOf(id)); got != slices.Contains(unasked, id) {
				t.Errorf("%s: %s needs no look: %v", when, id, got)
			}
		}
	}
	check("in a new store", []string{first, second, early, later, strings.ToUpper(second)})
	db.commit(t, Change{Claims: []edda.Claim{claim(first, noon)}})
	check("with the first", []string{second, early, later, strings.ToUpper(second)}, first)
	db.commit(t, Change{Claims: []edda.Claim{claim(early, noon), claim("c", noon)}})
	check("with one that is older, and one without a time", []string{second, later, strings.ToUpper(second)}, first, early, "c")
	db.commit(t, Change{Claims: []edda.Claim{claim(second, noon.Add(-3*time.Hour))}}) // by a clock that was set back
	check("with the second", []string{later, strings.ToUpper(second)}, first, early, "c", second)
	db.commit(t, Change{Remove: Removal{Claims: ClaimPlace{Hour: noon.Add(time.Hour)}}})
	db.commit(t, Change{}) // the hours are looked at behind the answer
	check("with none any more", []string{later, strings.ToUpper(second)})
	db.commit(t, Change{Claims: []edda.Claim{claim(first, noon), claim(second, noon)}})
	db.stop()
	db = open(t, dir, Options{})
	check("at the next start", nil, first, second)
	if _, found, err := db.Claim("acme", commandAt(noon.Add(time.Hour), 5)); found || err != nil || !db.hours.recent.lacks(recentOf(commandAt(noon.Add(time.Hour), 5))) {
		t.Errorf("a command of the next hour: found %v, %v", found, err)
	}
	db.commit(t, Change{Claims: []edda.Claim{claim(later, noon.Add(24*time.Hour))}}) // long after it was sent
	check("with a claim of another day", nil, first, second, later)
	db.stop()
	db = open(t, dir, Options{})
	check("at the start after that", nil, first, second, later)
}

// TestClaimsOfAnHourRemovedInTheSameTransaction: the hour is there again.
func TestClaimsOfAnHourRemovedInTheSameTransaction(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	claims := func(id string) Change {
		return Change{Claims: []edda.Claim{{Tenant: "acme", CommandID: id, Effect: "e", Claimed: noon}}}
	}
	var group []*job
	for _, c := range []Change{claims("before"), {Remove: Removal{Claims: ClaimPlace{Hour: noon.Add(time.Hour)}}}, claims("after")} {
		group = append(group, &job{change: must(encodeChange(c, c.Size()))})
	}
	tx := must(db.begin(true))
	defer func() { _ = tx.Rollback() }()
	if err := db.fill(tx, db.stamp.Next(noon), newStaged(db.index), group); err != nil {
		t.Fatal(err)
	}
	hour := tx.Bucket([]byte(format.Claim)).Bucket(format.HourKey(format.HourOf(noon)))
	for id, there := range map[string]bool{"before": false, "after": true} {
		if got := hour.Get(format.Texts("acme", id)) != nil; got != there {
			t.Errorf("the claim %s is there: %v", id, got)
		}
	}
}

// TestACommandBetweenClaimedOnesIsNotLookedUp: if this process has seen all claims of its time.
// After a restart it is looked up, and so is one whose claim was removed.
func TestACommandBetweenClaimedOnesIsNotLookedUp(t *testing.T) {
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

// TestEveryClaimIsFound: the set has it, or says to look it up, for any number and order of claims.
func TestEveryClaimIsFound(t *testing.T) {
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
