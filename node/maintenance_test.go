package node

import (
	"testing"
	"time"

	"edda"
	"edda/internal/testkit"
	"edda/store"
)

// TestASagasOwnRetentionGoesFirst: the newest text that the store knows counts.
func TestASagasOwnRetentionGoesFirst(t *testing.T) {
	db, _ := testkit.OpenStore(t, t.TempDir(), store.Options{})
	kept := func(version int, retention string) edda.Manifest {
		return edda.Manifest{Saga: "order", Version: version, Text: "saga: order\nversion: 1\nkey: event.id\n" + retention + "on: {A: {start: true}}\n"}
	}
	own := ownRetention([]edda.Manifest{kept(2, "retention: {done: 7d}\n"), kept(1, "retention: {done: 1d, failed: 90d}\n")})
	for status, want := range map[edda.Status]time.Duration{edda.StatusDone: 7 * retentionDay, edda.StatusFailed: 0, edda.StatusUndone: 0} {
		if d, ok := own["order"].of(status); d != want || ok != (want != 0) {
			t.Errorf("%s: %s %t", status, d, ok)
		}
	}
	settings, err := Defaults().retentionOf(db)
	if err != nil || settings.Instances("other", edda.StatusDone) != 30*retentionDay || settings.Claims != 7*retentionDay {
		t.Errorf("%+v %v", settings, err)
	}
}
