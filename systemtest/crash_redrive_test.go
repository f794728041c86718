//go:build !race

package systemtest

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/store"
)

// redriveKills are where a redrive of refused work is killed: before, within and
// behind the transaction that puts it into the outbox and takes its letter away,
// and on its way out. A commit that only tells of the start may come first.
var redriveKills = []kill{
	{point: "letterBeforeMark"},
	{point: "storeFilled", after: 1}, {point: "storeFilled", after: 2}, {point: "logWritten", after: 2}, {point: "logSynced", after: 2},
	{point: "storeCommitted", after: 1}, {point: "storeCommitted", after: 2}, {point: "letterMarked"},
	{point: "outboxRead"}, {point: "outboxPublished"}, {point: "outboxBeforeMark"}, {point: "outboxMarked"},
}

// TestRefusedWorkThatIsRedrivenGoesOutOnceWhereverItIsKilled: a letter for each
// point, as the relay writes them, is redriven while the process is killed there,
// and then once more, as whoever got no answer does.
func TestRefusedWorkThatIsRedrivenGoesOutOnceWhereverItIsKilled(t *testing.T) {
	beside(t)
	r := &tabRun{torture: newTorture(t, crashSeed(t), &tortured, tabManifest(2))}
	_, r.js = client(t, r.nats.url())
	r.start()
	r.open(1)
	before := r.books(1)
	r.refuse(len(redriveKills))
	for i, k := range redriveKills {
		again := &act{do: func(o *operators, ctx context.Context) error { return o.redrive(ctx, refusedID(i)) }}
		r.dieAt(kill{point: k.point, after: k.after, act: again})
	}
	r.start()
	for i := range redriveKills {
		if err := r.operators.redrive(t.Context(), refusedID(i)); err != nil && !strings.Contains(err.Error(), "no dead letter") {
			t.Errorf("redriven once more: %v", err)
		}
	}
	after := r.books(1)
	if len(after.letters) != 0 || after.left["outbox"] != 0 {
		t.Errorf("%d letters and %d rows of the outbox are left", len(after.letters), after.left["outbox"])
	}
	for i := range redriveKills {
		if got := after.published[refusedID(i)]; len(got) != 1 || !strings.Contains(got[0].subject, ".workflow_event.tab.") {
			t.Errorf("%s, killed at %s, went out %d times: %v", refusedID(i), redriveKills[i].point, len(got), got)
		}
	}
	if got, want := len(after.published), len(before.published)+len(redriveKills); got != want {
		t.Errorf("%d messages went out, want %d", got, want)
	}
	t.Logf("killed: %v", r.killed)
}

func refusedID(i int) string { return fmt.Sprintf("01a20000-0000-7000-8000-%012d", i) }

// refuse leaves n letters in the store of a process that is not running: of facts
// that their destination refused at the time.
func (r *tabRun) refuse(n int) {
	r.t.Helper()
	db, err := store.Open(filepath.Join(r.data, "store"), store.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- db.Run(ctx) }()
	k := edda.Key{Tenant: "default", Saga: "tab", Correlation: tabName(0)}
	var c store.Change
	for i := range n {
		w := edda.Work{ID: refusedID(i), Kind: edda.WorkFact, From: k, Name: "Opened", Payload: []byte(`{}`), Time: time.Now().UTC()}
		c.Dead = append(c.Dead, edda.DeadLetter{ID: "outbox." + w.ID, Reason: edda.DeadRejected, Key: k, Time: w.Time, Error: "too-large", Work: &w,
			Event: edda.Event{ID: w.ID, Tenant: k.Tenant, Type: w.Name, Payload: w.Payload, Time: w.Time}})
	}
	if err := db.Commit(ctx, c); err != nil {
		r.t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		r.t.Error(err)
	}
	if err := db.Close(); err != nil {
		r.t.Error(err)
	}
}

// redrive sends refused work once more.
func (o *operators) redrive(ctx context.Context, work string) error {
	_, err := o.call(ctx, http.MethodPost, "/v1/deadletters/outbox."+work+"/"+edda.VerbRedrive, map[string]string{"why": "torture"})
	return err
}
