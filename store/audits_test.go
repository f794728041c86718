package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"edda"
)

func TestTheAuditOfATenant(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for i, tenant := range []string{"acme", "zeta", "acme", "", "acme"} {
		db.commit(t, Change{Audits: []Audit{{Time: noon.Add(time.Duration(i) * time.Hour), By: "ann", Verb: string(rune('a' + i)), Key: edda.Key{Tenant: tenant}}}})
	}
	for _, tt := range []struct {
		q    AuditQuery
		want []string
		more bool
	}{
		{AuditQuery{Tenant: "acme", Limit: 10}, []string{"e", "c", "a"}, false},
		{AuditQuery{Tenant: "acme", Limit: 2}, []string{"e", "c"}, true},
		{AuditQuery{Tenant: "acme", Limit: 10, Since: noon.Add(time.Hour)}, []string{"e", "c"}, false},
		{AuditQuery{Tenant: "", Limit: 10}, []string{"d"}, false},
	} {
		found, next, err := db.AuditsOf(tt.q)
		if verbs := verbsOf(found); err != nil || next != "" != tt.more || !slices.Equal(verbs, tt.want) {
			t.Errorf("%+v: %v %q %v", tt.q, verbs, next, err)
		}
	}
	all, _, err := db.AuditsOf(AuditQuery{Tenant: "acme", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range all { // an id is a place, too
		if rest, _, err := db.AuditsOf(AuditQuery{Tenant: "acme", Limit: 10, After: a.ID}); err != nil || !slices.Equal(rest, all[i+1:]) {
			t.Errorf("after %+v: %+v, %v", a, rest, err)
		}
	}
	for _, place := range []string{"?", "AAAA", auditPlace(make([]byte, auditSize+1))} {
		if _, _, err := db.AuditsOf(AuditQuery{Tenant: "acme", Limit: 1, After: place}); !errors.Is(err, edda.Permanent) {
			t.Errorf("after %q: %v, want a permanent error", place, err)
		}
	}
}

func verbsOf(audits []Audit) (verbs []string) {
	for _, a := range audits {
		verbs = append(verbs, a.Verb)
	}
	return verbs
}

// TestTheAuditPagesOverActsOfOtherTenants: each page passes a bounded number of acts and starts
// where the last one ended.
func TestTheAuditPagesOverActsOfOtherTenants(t *testing.T) {
	db := open(t, t.TempDir(), Options{noSync: true})
	act := func(tenant, verb string) Audit { return Audit{Verb: verb, Key: edda.Key{Tenant: tenant}} }
	others := make([]Audit, maxAudits)
	for i := range others {
		others[i] = act("zeta", "x")
	}
	db.commit(t, Change{Audits: []Audit{act("acme", "old")}})
	for _, part := range slices.Collect(slices.Chunk(others, 1000)) {
		db.commit(t, Change{Audits: part})
	}
	db.commit(t, Change{Audits: append([]Audit{act("acme", "new")}, others[:500]...)})
	var got []string
	after := ""
	for page := 0; ; page++ {
		found, next, err := db.AuditsOf(AuditQuery{Tenant: "acme", Limit: 10, After: after})
		if err != nil || page > 2 {
			t.Fatalf("page %d: %v", page, err)
		}
		got = append(got, fmt.Sprint(page, " ", verbsOf(found)))
		if after = next; next == "" {
			break
		}
	}
	if want := []string{"0 [new]", "1 [old]"}; !slices.Equal(got, want) {
		t.Errorf("pages %q, want %q", got, want)
	}
	// A page may end at a place that is gone by the time it is asked for.
	if found, _, err := db.AuditsOf(AuditQuery{Tenant: "acme", Limit: 1, After: auditPlace([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))}); err != nil || !slices.Equal(verbsOf(found), []string{"new"}) {
		t.Errorf("from behind the end: %v %v", verbsOf(found), err)
	}
}
