//go:build !race

package systemtest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"edda"
	"edda/internal/harness"
	"edda/store"
)

// behindPoints are passed only where a saga is behind the streams.
var behindPoints = []string{"sagaBegun", "engineReadPast", "engineRejoined"}

// behindKills are the points at which a catch-up is killed, and how often each is passed
// before: those of the line and of the transaction, too.
var behindKills = []kill{
	{point: "engineReadPast"}, {point: "engineEvaluated", after: 2}, {point: "engineReadPast", after: 2}, {point: "storeFilled", after: 3},
	{point: "engineSubmitted", after: 3}, {point: "beforeSyncMetaPage"}, {point: "engineCommitted", after: 4}, {point: "engineReadPast", after: 3}, {point: "engineRejoined"},
}

// slowly has a catch-up take longer than a life.
var slowly = &act{do: func(*operators, context.Context) error { return nil }, lingers: "engineReadPast=sleep(150)"}

// lateManifest is that of the tabs with a saga that takes in the same events later.
func lateManifest(text string) string {
	newest := strings.SplitN(text, "\n---\n", 3)[1]
	return text + "\n---\n" + strings.Replace(newest, "saga: tab", "saga: late", 1)
}

// TestACatchUpThatIsKilledGoesOnWhereItWas: a saga is added to a store that has read much,
// and killed over and over while it is caught up, with events coming in. In the end it is
// as the saga that was there from the beginning, and nothing was sent twice.
func TestACatchUpThatIsKilledGoesOnWhereItWas(t *testing.T) {
	beside(t)
	r := &tabRun{torture: newTorture(t, crashSeed(t), &tortured, tabManifest(1))}
	_, r.js = client(t, r.nats.url())
	r.life = tabLife
	n := 5 * tabs
	if longRound() {
		n = longTabs
	}
	r.launch(failpointsOf("sagaBegun=sleep(\"1h\")")...)
	r.ready()
	r.open(n)
	r.settled()
	text, err := os.ReadFile(r.manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.manifest, []byte(lateManifest(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reloaded := make(chan struct{})
	go func() {
		defer close(reloaded)
		_, _ = r.operators.call(ctx, http.MethodPost, "/admin/reload", nil) // it is killed meanwhile
	}()
	r.await(r.life, func() bool {
		text, _ := ask("http://" + r.points + "/sagaBegun/count")
		return text != "" && text != "0"
	})
	r.child.kill()
	cancel()
	<-reloaded
	between := 0
	for _, k := range behindKills {
		r.open(tabsPerLife)
		k.act = slowly
		r.dieAt(k)
		between += b2i(r.behind() > 0)
	}
	if between < len(behindKills)/2 {
		t.Errorf("only %d of %d kills were in the middle: the test tests less than it says", between, len(behindKills))
	}
	r.start()
	untilIn(t, tortureWithin, "all is caught up", func() bool {
		return r.child.metric("edda_sagas_behind") == 0 && len(r.child.instances("late")) == r.sent
	})
	books := r.books(r.sent)
	if rows := r.behind(); rows != 0 {
		t.Errorf("%d positions are left", rows)
	}
	for i := range r.sent {
		in, late := r.tab(books, i), books.instances[edda.Key{Tenant: "default", Saga: "late", Correlation: tabName(i)}]
		if late == nil || field(late.State, "n") != field(in.State, "n") || late.Status != in.Status || len(late.Timers) != len(in.Timers) {
			t.Fatalf("%s is\n%s, the other\n%s", tabName(i), encoded(late), encoded(in))
		}
	}
	keys := map[string]map[string]bool{}
	for _, c := range r.shop.all() {
		what := c.Order + " " + c.Effect
		if keys[what] == nil {
			keys[what] = map[string]bool{}
		}
		keys[what][c.Key] = true
	}
	for i := range r.sent {
		if got := len(keys[tabName(i)+" reserve"]); got != 2 {
			t.Errorf("%s was reserved under %s keys, want 2", tabName(i), strconv.Itoa(got))
		}
	}
	books.emittedOnce(t)
}

// behind counts the positions that a killed process left beside the shared ones.
func (r *tabRun) behind() int {
	r.t.Helper()
	db, err := store.Open(filepath.Join(r.data, "store"), store.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	rows, err := db.Positions()
	if err := db.Close(); err != nil {
		r.t.Error(err)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return len(rows)
}

// pausedKills are the points at which sagas that fall behind and rejoin are killed.
var pausedKills = []kill{
	{point: "engineReadPast"}, {point: "engineRejoined"}, {point: "engineSubmitted", after: 9}, {point: "engineReadPast"}, {point: "storeFilled", after: 7},
	{point: "engineRejoined"}, {point: "engineEvaluated", after: 8}, {point: "engineCommitted", after: 12}, {point: "engineRejoined"}, {point: "engineReadPast"},
}

// fillOutbox has a saga fall behind in a life and catch up in the same one: it sends tabs to a
// process whose effects are slow until the outbox is full and the saga behind, and then has them
// be fast. A saga that is behind from the life before only catches up.
func (r *tabRun) fillOutbox() *act {
	const slow = "effectCalled"
	left := 4 * tabs / 10
	return &act{lingers: slow + "=sleep(100)", do: func(*operators, context.Context) error {
		page, ready := ask("http://" + r.addr + "/metrics")
		if !ready {
			return errors.New("it does not answer yet")
		}
		if left > 0 && harness.ParseCounters(page).Sum("edda_sagas_behind") == 0 {
			few := min(left, tabsPerLife)
			left -= few
			if err := r.publish(few); err != nil {
				return err
			}
			return errors.New("the outbox is not full yet")
		}
		return r.disable(slow)
	}}
}

// disable has a failpoint of the process do nothing from here on.
func (r *tabRun) disable(point string) error {
	req, err := http.NewRequest(http.MethodDelete, "http://"+r.points+"/"+point, nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: soon}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// pausedMore bounds the kills that are tried again at a point that was not reached.
const pausedMore = 10

// TestASagaThatIsPausedAndKilledLosesNothing: there is room for so little work that a saga
// falls behind and rejoins over and over, and is killed while it does.
func TestASagaThatIsPausedAndKilledLosesNothing(t *testing.T) {
	beside(t)
	r := &tabRun{torture: newTorture(t, crashSeed(t), &tortured, tabManifest(1))}
	_, r.js = client(t, r.nats.url())
	r.config = write(t, r.dir, "small.yaml", "effects: {allow: [127.0.0.1], ack_wait: 1s}\nlog: {level: error}\noutbox: {max: 12}\n"+shopSource)
	r.life = tabLife // a busy machine takes that long to fall behind
	r.start()
	r.child.kill()
	between := 0
	kill := func(k kill) {
		k.act = r.fillOutbox()
		r.dieAt(k)
		between += b2i(r.behind() > 0)
	}
	for _, k := range pausedKills {
		kill(k)
	}
	// A busy machine does not come to every point in one life.
	for more := 0; more < pausedMore && r.killed["engineReadPast"] == 0; more++ {
		kill(pausedKills[0])
	}
	for more := 0; more < pausedMore && (r.killed["engineRejoined"] == 0 || between == 0); more++ {
		kill(pausedKills[1])
	}
	t.Logf("killed %v, %d times while it was behind", r.killed, between)
	if r.killed["engineRejoined"] == 0 || r.killed["engineReadPast"] == 0 || between == 0 {
		t.Errorf("killed %v, %d times while it was behind: the test tests less than it says", r.killed, between)
	}
	r.start()
	untilIn(t, tortureWithin, "all is caught up", func() bool {
		return r.child.metric("edda_sagas_behind") == 0 && len(r.child.instances("tab")) == r.sent
	})
	books := r.books(r.sent)
	if rows := r.behind(); rows != 0 {
		t.Errorf("%d positions are left", rows)
	}
	r.counted(books, r.sent, 2)
	books.emittedOnce(t)
	for i := range r.sent {
		keys := map[string]bool{}
		for _, c := range books.calls[tabName(i)] {
			keys[strings.TrimSuffix(c, "200")] = true
		}
		if want := 1 + b2i(i%3 == 0); len(keys) < want {
			t.Errorf("%s has the calls %v", tabName(i), books.calls[tabName(i)])
		}
	}
}
