//go:build !race

package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/replay"
	"edda/server"
	"edda/store"
	"edda/stream/wire"
)

const (
	// tabs are the instances that are built again, and longTabs those of make crash.
	tabs     = 240
	longTabs = 1200
	// tabLife is for all of them to be built and most to be exchanged, on a busy machine.
	tabLife = 30 * time.Second
	// tabsPerLife come while a replay is under way.
	tabsPerLife = 4
	// tabCalls bounds what one process has under way at the effect server when it
	// is killed: that may be called again.
	tabCalls = 64
)

// tabSaga counts by its version, %[1]d. What %[2]s adds goes out in addition.
const tabSaga = `---
saga: tab
version: %[1]d
key: event.order_id
from: all
state: {n: 0}
on:
  TabOpened:
    start: true
    set: {n: "=%[1]d * event.n"}
    do:
      - {timer: remind, after: 1000h}
      - {event: Opened, with: {order: =key}}
      - {effect: reserve, with: {order: =key}}%[2]s
  TabAdded: {set: {n: "=state.n + %[1]d * event.n"}, do: [{command: Tab.Note, to: =key}]}
  TabClosed: {do: [{cancel: remind}, {seq: [{effect: charge, with: {order: =key}}, {done: {n: =state.n}}]}]}
  timer.remind: {do: [{command: Tab.Remind, to: =key}]}
`

// tabGreets is what only version 3 sends.
const tabGreets = `
      - {command: Tab.Greet, to: =key}
      - {effect: pack, with: {order: =key}}`

func tabManifest(newest int) func(string) string {
	return func(url string) string {
		text := fmt.Sprintf(tabSaga, 1, "") + fmt.Sprintf(tabSaga, 2, "")
		if newest == 3 {
			text += fmt.Sprintf(tabSaga, 3, tabGreets)
		}
		for _, e := range tortureEffects {
			text += fmt.Sprintf(tortureEffect, e, url)
		}
		return strings.TrimPrefix(text, "---\n")
	}
}

// tabRun is a run whose replays are killed.
type tabRun struct {
	*torture
	js    jetstream.JetStream
	sent  int
	mixed int // kills that left some instances built again and others not
}

// tabKills are the points at which one replay is killed, one after the other, and
// how often each is passed before: those of the transaction, too.
var tabKills = []kill{
	{point: "replayRound"}, {point: "replayBuilt", after: 10}, {point: "engineExchanged", after: 30}, {point: "storeFilled", after: 2},
	{point: "replayExchanged", after: 40}, {point: "beforeSyncMetaPage", after: 3}, {point: "replayExchanged", after: 3}, {point: "replayDone"},
}

// TestReplaysThatAreKilledEndAsIfNobodyHadKilledThem builds many instances again
// with another version, and with their own: killed over and over between two
// exchanges and in their commits, with events coming in, each replay goes on by
// itself. In the end every instance is what it was, byte for byte, and nothing was
// sent; what a third version sends in addition is sent once.
func TestReplaysThatAreKilledEndAsIfNobodyHadKilledThem(t *testing.T) {
	beside(t)
	r := &tabRun{torture: newTorture(t, crashSeed(t), &tortured, tabManifest(2))}
	_, r.js = client(t, r.nats.url())
	r.life = tabLife
	r.start()
	n := tabs
	if longRound() {
		n = longTabs
	}
	r.open(n)
	before := r.books(n)
	r.rebuilt(server.ReplayOrder{Saga: "tab", Version: 1})
	r.counted(r.books(n), n, 1)
	r.rebuilt(server.ReplayOrder{Saga: "tab", Version: 2})
	after := r.books(n)
	r.counted(after, n, 2)
	r.asBefore(before, after, n)
	r.greeted(n)
}

// rebuilt begins a replay, kills the process at every point, and waits for its end.
func (r *tabRun) rebuilt(order server.ReplayOrder) {
	r.t.Helper()
	begin := time.Now()
	r.start()
	began, err := r.operators.begin(r.t.Context(), order)
	if err != nil {
		r.t.Fatal(err)
	}
	r.child.kill()
	hit, old := r.hits(), r.sent
	r.mixed = 0
	for _, k := range tabKills {
		r.open(tabsPerLife)
		r.dieAt(k)
		r.look(old)
	}
	r.start()
	r.settled()
	done := r.ended(began.ID)
	if done.State != replay.StateDone || done.Progress.Exchanged+done.Progress.Before == 0 {
		r.t.Errorf("the replay with version %d: %s", order.Version, encoded(done))
	}
	hit = r.hits() - hit
	r.t.Logf("with version %d, emit %s: killed %d times at a point, %d times between two exchanges, %d instances in the end, %d exchanged before the last start, %d sent; %v",
		order.Version, done.Emit, hit, r.mixed, done.Progress.KeysDone, done.Progress.Before, done.Progress.Sent, time.Since(begin).Round(time.Millisecond))
	if most := len(tabKills); hit < most/2 || r.mixed == 0 {
		r.t.Errorf("of %d kills only %d were at their point, and %d between two exchanges: the test tests less than it says", most, hit, r.mixed)
	}
}

// look tells whether a killed process left one part of the instances that there
// were built again, and another not.
func (r *tabRun) look(old int) {
	r.t.Helper()
	db, err := store.Open(filepath.Join(r.data, "store"), store.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	v, err := db.View()
	if err != nil {
		r.t.Fatal(err)
	}
	versions := map[int]bool{}
	for i := range old {
		cell, err := v.Cell(edda.Key{Tenant: "default", Saga: "tab", Correlation: tabName(i)})
		if err != nil || cell.Instance == nil {
			r.t.Fatalf("%s is not there: %v", tabName(i), err)
		}
		versions[cell.Instance.Version] = true
	}
	v.Close()
	if err := db.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.mixed += b2i(len(versions) > 1)
}

// hits counts the kills at a named point so far.
func (r *tabRun) hits() (n int) {
	for _, k := range tabKills {
		n += r.killed[k.point]
	}
	return n - r.killed["replayExchanged"] // it is there twice
}

func (r *tabRun) ended(id string) (out replay.Report) {
	r.t.Helper()
	untilIn(r.t, tortureWithin, "the replay goes on to its end", func() bool {
		list, err := r.operators.replays(r.t.Context(), id)
		if err != nil {
			r.t.Fatal(err)
		}
		out = list[0]
		return out.State != replay.StateRunning
	})
	return out
}

// open sends n tabs more. Every third is closed.
func (r *tabRun) open(n int) {
	r.t.Helper()
	if err := r.publish(n); err != nil {
		r.t.Fatal(err)
	}
}

func (r *tabRun) publish(n int) error {
	for range n {
		id := tabName(r.sent)
		says := []string{"TabOpened", "TabAdded"}
		if r.sent%3 == 0 {
			says = append(says, "TabClosed")
		}
		for way, name := range says {
			m := messageOf(way, id, id+"-"+name, name, fmt.Sprintf(`{"order_id":%q,"n":%d}`, id, 1+r.sent))
			if err := publishSurely(r.js, m); err != nil {
				return err
			}
		}
		r.sent++
	}
	return nil
}

func tabName(i int) string { return fmt.Sprintf("tab-%d", i) }

// settled waits until all that was sent has come to rest: an effect's row lies in
// the outbox until its result was applied.
func (r *tabRun) settled() {
	r.t.Helper()
	untilIn(r.t, tortureWithin, "everything comes to rest", func() bool {
		return r.caughtUp(r.js) && len(r.child.instances("tab")) == r.sent && r.child.metric("edda_outbox_items") == 0 && r.closed()
	})
}

func (r *tabRun) closed() bool {
	n := 0
	for _, in := range r.child.instances("tab") {
		if in.Status == edda.StatusDone {
			n++
		}
	}
	return n == (r.sent+2)/3
}

// tabBooks are what there is of the first tabs: of each its instance, what went
// out for it to the streams, and its calls.
type tabBooks struct {
	*books
	calls map[string][]string
}

// books stops the process and reads them.
func (r *tabRun) books(n int) *tabBooks {
	r.t.Helper()
	r.settled()
	if code := r.child.terminate(); code != 0 {
		r.t.Errorf("exit code %d: %s", code, r.child.err)
	}
	b := &tabBooks{books: readBooks(r.t, filepath.Join(r.data, "store"), r.nats.url()), calls: map[string][]string{}}
	for _, err := range b.findings {
		r.t.Error(err)
	}
	for _, c := range r.shop.all() {
		b.calls[c.Order] = append(b.calls[c.Order], fmt.Sprint(c.Effect, c.Key, c.Status))
	}
	for i := range n {
		if r.tab(b, i) == nil {
			r.t.Fatalf("%s is not there", tabName(i))
		}
	}
	return b
}

func (r *tabRun) tab(b *tabBooks, i int) *edda.Instance {
	return b.instances[edda.Key{Tenant: "default", Saga: "tab", Correlation: tabName(i)}]
}

// counted: every instance is what a version makes of its events.
func (r *tabRun) counted(b *tabBooks, n, version int) {
	r.t.Helper()
	for i := range n {
		in := r.tab(b, i)
		if got, want := field(in.State, "n"), fmt.Sprint(2*version*(1+i)); in.Version != version || got != want || len(in.Incidents) > 0 {
			b.wrong(r.t, "not built again", "%s has version %d and counts %s, want %d and %s", in.Key, in.Version, got, version, want)
		}
		if timers := 1 - b2i(i%3 == 0); len(in.Timers) != timers {
			b.wrong(r.t, "timers", "%s has %d, want %d", in.Key, len(in.Timers), timers)
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// asBefore: the instances are as they were, byte for byte, nothing more went out
// for them, and nobody was called again.
func (r *tabRun) asBefore(before, after *tabBooks, n int) {
	r.t.Helper()
	for i := range n {
		was, is := encoded(r.tab(before, i)), encoded(r.tab(after, i))
		if !bytes.Equal(was, is) {
			after.wrong(r.t, "not as before", "%s is\n%s, and was\n%s", tabName(i), is, was)
		}
		if a, b := before.calls[tabName(i)], after.calls[tabName(i)]; !slices.Equal(a, b) {
			after.wrong(r.t, "called again", "%s: %v, before %v", tabName(i), b, a)
		}
	}
	for id, list := range before.published {
		if len(after.published[id]) != len(list) {
			after.wrong(r.t, "sent again", "%s on %s: %d times, before %d", id, list[0].subject, len(after.published[id]), len(list))
		}
	}
	r.nothingNew(before, after, n)
	after.emittedOnce(r.t)
}

// emittedOnce: no work went out by two records. Its messages would not tell: the
// stream and the ledger know an id for a while.
func (b *tabBooks) emittedOnce(t testing.TB) {
	t.Helper()
	seen := map[string]bool{}
	for k, records := range b.records {
		for _, rec := range records {
			for _, id := range rec.Work {
				if seen[id] {
					b.wrong(t, "sent again", "%s of %s", id, k)
				}
				seen[id] = true
			}
		}
	}
}

// nothingNew: what was published since is of the tabs that came since.
func (r *tabRun) nothingNew(before, after *tabBooks, n int) {
	r.t.Helper()
	old := map[string]bool{}
	for i := range n {
		old[tabName(i)] = true
	}
	emitted := 0
	for k, records := range after.records {
		for _, rec := range records {
			for _, id := range rec.Work {
				if old[k.Correlation] && !before.told(id) {
					after.wrong(r.t, "sent", "%s of %s went out since", id, k)
				}
				switch {
				case len(after.published[id]) > 0:
					emitted++
				case !after.told(id):
					after.wrong(r.t, "sent", "%s of %s never went out", id, k)
				}
			}
		}
	}
	results := 0
	for _, list := range after.published {
		results += b2i(strings.Contains(list[0].subject, ".effect_result."))
	}
	if len(after.published) != emitted+results {
		r.t.Errorf("%d messages went out, %d are recorded and %d are results", len(after.published), emitted, results)
	}
}

// told tells whether a piece of work went out: where it is an effect's command that
// did not leave the process, its result did.
func (b *tabBooks) told(id string) bool {
	return len(b.published[id]) > 0 || len(b.published[wire.ResultID(id)]) > 0
}

// greeted: what version 3 sends in addition goes out once for each tab that had
// begun before it, however often the replay that sends it is killed.
func (r *tabRun) greeted(n int) {
	r.t.Helper()
	begun := r.sent
	r.manifest = write(r.t, r.dir, "shop3.yaml", tabManifest(3)(siteOf(r.t, r.manifest)))
	r.rebuilt(server.ReplayOrder{Saga: "tab", Version: 3, Emit: replay.EmitNew})
	after := r.books(n)
	r.counted(after, begun, 3)
	after.emittedOnce(r.t)
	greets := r.greets()
	for i := range r.sent {
		if id := tabName(i); len(greets[id]) != 1 {
			after.wrong(r.t, "sent once", "%s was greeted by %v", id, greets[id])
		}
		if got := distinct(after.calls[tabName(i)], "pack"); got != 1 {
			after.wrong(r.t, "sent once", "%s was packed %d times: %v", tabName(i), got, after.calls[tabName(i)])
		}
	}
	_, again := r.shop.callsOf()
	if most := len(tabKills) * 3 * tabCalls; again > most {
		r.t.Errorf("%d calls came after an answer: more than the kills excuse", again)
	}
}

// siteOf finds the effect server's address in a manifest.
func siteOf(t testing.TB, manifest string) string {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `url: "`)
	url, _, found := strings.Cut(rest, "/reserve")
	if !found {
		t.Fatalf("no address in %s", text)
	}
	return url
}

// greets are the messages that greet, by tab: their ids, as the stream has them.
func (r *tabRun) greets() map[string][]string {
	r.t.Helper()
	out := map[string][]string{}
	for _, m := range readAll(r.t, r.js, wire.WorkflowCommands, "tenant.default.command.>") {
		var body struct {
			ID          string `json:"command_id"`
			AggregateID string `json:"aggregate_id"`
			Payload     string `json:"payload_json"`
		}
		decode(r.t, m.Data(), &body)
		if field(json.RawMessage(body.Payload), "command") == "Greet" {
			out[body.AggregateID] = append(out[body.AggregateID], body.ID)
		}
	}
	return out
}

// distinct counts the calls of one effect that it was done by: the upstream heeds
// the key.
func distinct(calls []string, effect string) int {
	var keys []string
	for _, c := range calls {
		if strings.HasPrefix(c, effect) && !strings.HasSuffix(c, "503") {
			keys = append(keys, c)
		}
	}
	slices.Sort(keys)
	return len(slices.Compact(keys))
}
