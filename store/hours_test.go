package store

import (
	"testing"
	"time"

	"edda"
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
func TestHoursGoWithTheirClaims(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	claim := func(hour int) edda.Claim {
		return edda.Claim{Tenant: "acme", CommandID: "c" + time.Duration(hour).String(), Claimed: noon.Add(time.Duration(hour) * time.Hour)}
	}
	db.commit(t, Change{Claims: []edda.Claim{claim(0), claim(1), claim(2)}})
	same(t, "hours", len(db.hours.now.Load().hours), 3)
	db.commit(t, Change{Remove: Removal{Claims: ClaimPlace{Hour: noon.Add(2 * time.Hour)}}, Claims: []edda.Claim{claim(1)}})
	db.commit(t, Change{}) // the hours are looked at behind the answer
	same(t, "hours that are left", db.hours.now.Load().hours, []uint32{hourOf(noon) + 1, hourOf(noon) + 2})
	for hour, want := range []bool{false, true, true} {
		if _, found, err := db.Claim("acme", claim(hour).CommandID); found != want || err != nil {
			t.Errorf("claim %d: found %v, %v", hour, found, err)
		}
	}
}

// TestClaimsOfAnHourThatWentInTheSameTransaction: the hour is there again.
func TestClaimsOfAnHourThatWentInTheSameTransaction(t *testing.T) {
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
	if err := db.fill(tx, db.stamp.next(noon), newStaged(db.index), group); err != nil {
		t.Fatal(err)
	}
	hour := tx.Bucket([]byte(bucketClaim)).Bucket(hourKey(hourOf(noon)))
	for id, there := range map[string]bool{"before": false, "after": true} {
		if got := hour.Get(texts("acme", id)) != nil; got != there {
			t.Errorf("the claim %s is there: %v", id, got)
		}
	}
}
