//go:build !race

package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"edda/retention"
	"edda/store"
)

const (
	// visits are more than three portions of a clean-up, which are goneAtOnce each.
	visits     = 200
	goneAtOnce = 64
)

// collectKills are where a clean-up is killed, one after the other: before the
// first portion is removed, behind it, and between two of them; then it is ended.
var collectKills = []kill{{point: "retentionClocked"}, {point: "retentionFound"}, {point: "retentionRemoved"}, {point: "retentionFound", after: 1}, {point: "retentionRemoved"}}

// TestACleanUpThatIsKilledGoesOnWhereItWas: what was removed stays removed, a
// portion is gone whole or not at all, and all that is to be kept is.
func TestACleanUpThatIsKilledGoesOnWhereItWas(t *testing.T) {
	beside(t)
	w := newTorture(t, crashSeed(t), &tortured, tortureManifest)
	w.start()
	load := produce(t, w.nats.url(), rand.New(rand.NewPCG(w.seed, 2)), time.Millisecond)
	load.released <- len(lots)
	load.finish()
	w.visit(load)
	w.child.kill()
	gone := 0
	for _, k := range collectKills {
		k.act = actAt(k.point)
		w.dieAt(k)
		if k.point == "retentionRemoved" || k.after > 0 {
			gone += goneAtOnce
		}
		if left := w.visits(); w.killed[k.point] == 0 || left != visits+1-gone {
			t.Errorf("killed at %s: %d visits are left, want %d; %v", k.point, left, visits+1-gone, w.killed)
		}
	}
	w.operated = true
	w.start()
	w.settleAndJudge(load)
	if n := w.visits(); n > 0 {
		t.Errorf("%d visits are left in the end", n)
	}
}

// visit sends visits, besides the one that is an order's, and waits until all of
// them have outlived their retention.
func (w *torture) visit(load *producer) {
	w.t.Helper()
	for i := range visits {
		id := fmt.Sprintf("visited-too-%d", i)
		if err := publishSurely(load.js, messageOf(0, id, eventID(id, 0), "VisitPaid", fmt.Sprintf(`{"order_id":%q}`, id))); err != nil {
			w.t.Fatal(err)
		}
	}
	untilIn(w.t, tortureWithin, "the visits have outlived their retention", func() bool {
		r, err := w.operators.wouldCollect(w.t.Context())
		return err == nil && r.Rows() == visits+1
	})
}

// wouldCollect asks what a clean-up would remove.
func (o *operators) wouldCollect(ctx context.Context) (r retention.Report, err error) {
	out, err := o.call(ctx, http.MethodPost, "/admin/gc?dry_run=true", nil)
	if err != nil {
		return r, err
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return r, json.Unmarshal(lines[len(lines)-1], &struct{ Result *retention.Report }{&r})
}

// visits counts those that a dead process left, in a store that must be sound.
func (w *torture) visits() (n int) {
	w.t.Helper()
	db, err := store.Open(filepath.Join(w.data, "store"), store.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, err := range db.Check(w.t.Context()) {
		w.t.Error(err)
	}
	list, err := db.Instances(store.Query{Limit: 10 * visits})
	if err := errors.Join(err, db.Close()); err != nil {
		w.t.Fatal(err)
	}
	for _, in := range list {
		n += b2i(in.Key.Saga == "visit")
	}
	return n
}
