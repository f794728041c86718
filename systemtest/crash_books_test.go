//go:build !race

package systemtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	bolt "go.etcd.io/bbolt"

	"edda"
	"edda/node"
	"edda/store"
	"edda/store/wal"
	"edda/stream/wire"
)

// books are everything that a run left: what the store and the streams hold once
// the process has stopped, and what the shop saw.
type books struct {
	events    []edda.Event // the producer's, in stream order
	keys      []edda.Key
	records   map[edda.Key][]store.Record // oldest first
	stores    [][]store.Record            // the same: those of each store
	instances map[edda.Key]*edda.Instance
	claims    map[string]edda.Claim
	published map[string][]published // by message id
	findings  []error                // of the store's own check
	left      map[string]int         // rows that should be gone, by keyspace
	letters   []edda.DeadLetter
	last      uint64                // commit
	completed map[string]edda.Claim // as killed processes left them
	shop      *tortureShop
	operated  bool // what has outlived its retention is gone
	relived   bool // claims may be lost, or lie elsewhere: the streams have the results
	told      map[string]int
}

// published is one message of the product.
type published struct {
	subject string
	body    []byte
	at      time.Time // when it was stored
}

// wrong tells of a disagreement; of many of one kind the first few.
func (b *books) wrong(t testing.TB, kind, format string, args ...any) {
	t.Helper()
	const most = 8
	if b.told[kind]++; b.told[kind] <= most {
		t.Errorf(kind+": "+format, args...)
	}
	if b.told[kind] == most+1 {
		t.Errorf("%s: and more", kind)
	}
}

// readBooks reads the streams, the store in a folder, and those of the other shards.
func readBooks(t testing.TB, dir, natsURL string, shards ...string) *books {
	t.Helper()
	b := &books{records: map[edda.Key][]store.Record{}, instances: map[edda.Key]*edda.Instance{}, claims: map[string]edda.Claim{},
		published: map[string][]published{}, left: map[string]int{}, told: map[string]int{}}
	_, js := client(t, natsURL)
	b.readStreams(t, js)
	dirs := append([]string{dir}, shards...)
	b.readStores(t, dirs)
	for _, dir := range dirs {
		b.readRows(t, filepath.Join(dir, store.FileName))
	}
	return b
}

// eventStreams are the streams of the events that the shop publishes.
var eventStreams = []string{wire.AggregateEvents, shopStream}

// shopCodec reads them as the product does.
func shopCodec(t testing.TB) wire.Codec {
	t.Helper()
	config, err := node.Load(node.Sources{File: write(t, t.TempDir(), "edda.yaml", shopSource)})
	if err != nil {
		t.Fatal(err)
	}
	codec, err := config.Codec()
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

// place is an event's place in the streams.
type place struct {
	stream string
	seq    uint64
	member int
}

func placeOf(ev edda.Event) place { return place{ev.Stream, ev.Seq, ev.Member} }

func (b *books) readStreams(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	codec := shopCodec(t)
	for _, name := range eventStreams {
		for _, m := range readAll(t, js, name, ">") {
			md, err := m.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range codec.Split(wire.Message{Subject: m.Subject(), Header: m.Headers(), Data: m.Data(),
				Stream: md.Stream, Seq: md.Sequence.Stream, Time: md.Timestamp}) {
				b.events = append(b.events, codec.Event(one))
			}
		}
	}
	for _, name := range []string{wire.WorkflowCommands, wire.WorkflowEvents} {
		for _, m := range readAll(t, js, name, ">") {
			md, err := m.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			id := idOf(m)
			b.published[id] = append(b.published[id], published{m.Subject(), m.Data(), md.Timestamp})
		}
	}
}

// readStores reads the stores of all shards. No key is in two of them.
func (b *books) readStores(t testing.TB, dirs []string) {
	t.Helper()
	seen := map[edda.Key]bool{}
	var all []*store.DB
	for _, dir := range dirs {
		db, err := store.Open(dir, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		all = append(all, db)
		b.findings = append(b.findings, db.Check(context.Background())...)
		b.readInstances(t, db, seen)
		letters, err := db.DeadLetters("", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		b.letters = append(b.letters, letters...)
	}
	for _, ev := range b.events {
		if k := (edda.Key{Tenant: ev.Tenant, Saga: lotNamed(ev.AggregateID).saga, Correlation: ev.AggregateID}); !seen[k] {
			seen[k] = true
			b.keys = append(b.keys, k)
		}
	}
	for _, db := range all {
		b.stores = append(b.stores, b.readHistories(t, db))
	}
}

func (b *books) readInstances(t testing.TB, db *store.DB, seen map[edda.Key]bool) {
	t.Helper()
	for after := (edda.Key{}); ; {
		page, err := db.Instances(store.Query{After: after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return
		}
		for i := range page {
			in := &page[i]
			if seen[in.Key] {
				b.wrong(t, "shards", "%s is in two stores", in.Key)
			}
			after, b.instances[in.Key], seen[in.Key] = in.Key, in, true
			b.keys = append(b.keys, in.Key)
		}
	}
}

// readHistories returns the records of a store.
func (b *books) readHistories(t testing.TB, db *store.DB) (all []store.Record) {
	t.Helper()
	for _, k := range b.keys {
		records, err := db.History(k, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 0 {
			continue
		}
		if len(b.records[k]) > 0 {
			b.wrong(t, "shards", "%s has records in two stores", k)
		}
		slices.Reverse(records)
		b.records[k], all = records, append(all, records...)
		for _, r := range records {
			b.last = max(b.last, r.Commit)
		}
	}
	return all
}

// readRows reads what the store does not list.
func (b *books) readRows(t testing.TB, path string) {
	t.Helper()
	err := viewed(path, func(tx *wal.Tx) error {
		for _, name := range []string{"outbox", "parked", "held"} {
			if err := tx.Bucket([]byte(name)).ForEach(func(_, _ []byte) error {
				b.left[name]++
				return nil
			}); err != nil {
				return err
			}
		}
		return eachClaim(tx, func(c edda.Claim) {
			if _, twice := b.claims[c.CommandID]; twice {
				b.wrong(t, "claims", "%s is in two hours", c.CommandID)
			}
			b.claims[c.CommandID] = c
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// viewed reads a store's file that no process has open.
func viewed(path string, read func(*wal.Tx) error) error {
	raw, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: soon})
	if err != nil {
		return err
	}
	db, err := wal.Load(raw, wal.Options{})
	if err != nil {
		return errors.Join(err, raw.Close())
	}
	return errors.Join(db.View(read), db.Close())
}

func eachClaim(tx *wal.Tx, visit func(edda.Claim)) error {
	hours := tx.Bucket([]byte("claim"))
	return hours.ForEach(func(hour, _ []byte) error {
		return hours.Bucket(hour).ForEach(func(_, row []byte) error {
			var c edda.Claim
			if err := json.Unmarshal(row, &c); err != nil {
				return err
			}
			visit(c)
			return nil
		})
	})
}

// judge holds the books against what was sent. A clock that was stepped says
// nothing about what came before what.
func (b *books) judge(t testing.TB, orders int, stepped bool) {
	t.Helper()
	for _, err := range b.findings {
		b.wrong(t, "the store contradicts itself", "%v", err)
	}
	for name, n := range b.left {
		if n > 0 {
			b.wrong(t, "left behind", "%d rows of %s", n, name)
		}
	}
	letters := map[string]bool{} // an event that was sent again much later may have two
	for _, l := range b.letters {
		letters[l.Event.ID] = true
	}
	if got, want := len(letters), wantLetters(orders); got != want {
		b.wrong(t, "dead letters", "%d, want %d", got, want)
	}
	b.judgeFates(t)
	b.judgeOrder(t)
	b.judgeWork(t)
	b.judgeEffects(t, stepped)
	b.judgeKeys(t)
	b.judgeOrders(t, orders)
}

// final are the fates that end an event.
var final = []edda.Fate{edda.FateHandled, edda.FateGuarded, edda.FateLate, edda.FateDuplicate, edda.FateDead, edda.FateIgnored}

// fatesOf lists what became of each event, by its place in the streams.
func (b *books) fatesOf() map[place][]edda.Fate {
	out := map[place][]edda.Fate{}
	for _, records := range b.records {
		for _, r := range records {
			if r.Event.Kind == edda.KindEvent && slices.Contains(eventStreams, r.Event.Stream) {
				out[placeOf(r.Event)] = append(out[placeOf(r.Event)], r.Fate)
			}
		}
	}
	return out
}

// judgeFates: every event that was published ended as exactly one of the fates,
// and as the one that its lot says; what was published twice is a duplicate, or
// again what it was if nothing was done with it.
func (b *books) judgeFates(t testing.TB) {
	t.Helper()
	fates, first := b.fatesOf(), map[string]bool{}
	for _, ev := range b.events {
		got := fates[placeOf(ev)]
		if ev.Malformed != "" { // what an operator made of it comes later in the stream
			continue
		}
		got = b.redriven(ev, got)
		end := edda.FateIgnored // alone is not written down
		if len(got) > 0 {
			end = got[len(got)-1]
		}
		if !oneFate(got) {
			b.wrong(t, "fates", "event %s at %d: %v", ev.ID, ev.Seq, got)
		}
		want := b.wanted(ev)
		again := first[ev.ID]
		first[ev.ID] = true
		if ok := end == want && !(again && want == edda.FateHandled) || again && end == edda.FateDuplicate; !ok {
			b.wrong(t, "fates", "event %s at %d ended %s, want %s (again: %v); all: %v", ev.ID, ev.Seq, end, want, again, got)
		}
	}
}

// redriven is what became of an event in the end that died at first, and that an
// operator then had applied with other data.
func (b *books) redriven(ev edda.Event, got []edda.Fate) []edda.Fate {
	if n := len(got); n > 1 && got[n-2] == edda.FateDead && b.wanted(ev) == edda.FateHandled {
		return append(slices.Clone(got[:n-2]), got[n-1])
	}
	return got
}

// oneFate: at once, or after it was parked or held.
func oneFate(got []edda.Fate) bool {
	if len(got) > 0 && (got[0] == edda.FateParked || got[0] == edda.FateHeld) {
		got = got[1:]
		if len(got) == 0 {
			return false
		}
	}
	return len(got) == 0 || len(got) == 1 && slices.Contains(final, got[0])
}

// wanted is the fate that an event's lot says.
func (b *books) wanted(ev edda.Event) edda.Fate {
	l := lotNamed(ev.AggregateID)
	if strings.HasPrefix(ev.ID, "redrive-") {
		return unread.fate
	}
	for n, s := range l.says {
		if strings.HasSuffix(ev.ID, eventID(ev.AggregateID, n)) {
			return s.fate
		}
	}
	return ""
}

// judgeOrder: events of a stream were applied in its order, and a result only
// after its command.
func (b *books) judgeOrder(t testing.TB) {
	t.Helper()
	for _, records := range b.stores {
		b.judgeOrderIn(t, records)
	}
}

func (b *books) judgeOrderIn(t testing.TB, all []store.Record) {
	t.Helper()
	slices.SortFunc(all, func(x, y store.Record) int {
		if x.Commit != y.Commit {
			return int(int64(x.Commit) - int64(y.Commit))
		}
		return x.N - y.N
	})
	last, seen, sent := map[string]place{}, map[place]bool{}, map[string]bool{}
	for _, r := range all {
		ev := r.Event
		if ev.Kind == edda.KindResult && r.Fate == edda.FateHandled && !sent[ev.CommandID] {
			b.wrong(t, "order", "%s took a result of %s before it had sent the command", r.Key, ev.CommandID)
		}
		for _, id := range r.Work {
			sent[id] = true
		}
		if ev.Seq == 0 {
			continue
		}
		at, before := placeOf(ev), last[ev.Stream]
		late := cmp.Or(cmp.Compare(at.seq, before.seq), cmp.Compare(at.member, before.member)) < 0
		if late && !seen[at] {
			b.wrong(t, "order", "%s at %s of %s was applied after %+v", r.Key, ev.Number(), ev.Stream, before)
		}
		if seen[at] = true; !late {
			last[ev.Stream] = at
		}
	}
}

// judgeWork: what a transition emitted was published, under its id and always
// the same; and nothing else was.
func (b *books) judgeWork(t testing.TB) {
	t.Helper()
	emitted, effects := map[string]edda.Key{}, b.effectCommands()
	for k, records := range b.records {
		for _, r := range records {
			for _, id := range r.Work {
				if other, twice := emitted[id]; twice {
					b.wrong(t, "commands", "%s was emitted twice, by %s and %s", id, other, k)
				}
				emitted[id] = k
				if !b.evident(id, effects) {
					b.wrong(t, "commands", "%s of %s (%v) was never published, nor its effect called", id, k, r.Outputs)
				}
			}
		}
	}
	for id, list := range b.published {
		_, ours := emitted[id]
		for _, p := range list {
			if !ours && !strings.Contains(p.subject, ".effect_result.") && !strings.HasPrefix(id, "drop-") && !strings.HasPrefix(id, "answer-") && !strings.HasPrefix(id, "deadletter/") {
				b.wrong(t, "commands", "%s on %s was published and never emitted", id, p.subject)
			}
			if where(p.subject) != where(list[0].subject) || ours && !bytes.Equal(p.body, list[0].body) {
				b.wrong(t, "commands", "%s says two things: %s %s, and %s %s", id, list[0].subject, list[0].body, p.subject, p.body)
			}
		}
	}
	b.judgeResults(t)
	b.judgeCopies(t)
}

// where is the subject of a message, and of a result also for its echo: a worker that does not learn
// whether the result that it handed over is durable publishes it as well.
func where(subject string) string {
	if strings.Contains(subject, ".effect_result.") {
		return strings.TrimSuffix(subject, ".echo")
	}
	return subject
}

// judgeResults: whatever was published as the result of a command is what its
// claim keeps.
func (b *books) judgeResults(t testing.TB) {
	t.Helper()
	for _, list := range b.published {
		for _, p := range list {
			if !strings.Contains(p.subject, ".effect_result.") {
				continue
			}
			var r struct {
				ID      string          `json:"command_id"`
				Outcome edda.Outcome    `json:"result_type"`
				Payload json.RawMessage `json:"payload"`
			}
			decode(t, p.body, &r)
			if c := b.claims[r.ID]; !c.Done && b.answered(r.ID) {
				continue
			} else if c.Outcome != r.Outcome || !bytes.Equal(c.Result, r.Payload) {
				b.wrong(t, "results", "%s was told %s %s, and its claim says %s %s", r.ID, r.Outcome, r.Payload, c.Outcome, c.Result)
			}
		}
	}
}

// judgeEffects: every command of an effect has one completed claim, its effect
// happened once, and no call was begun after the claim was completed.
func (b *books) judgeEffects(t testing.TB, stepped bool) {
	t.Helper()
	commands := b.effectCommands()
	for id, list := range b.published {
		if strings.Contains(list[0].subject, ".effect.") && !commands[id] {
			b.wrong(t, "commands", "the command %s was published and never emitted", id)
		}
	}
	for id := range commands {
		if !b.claims[id].Done && !b.answered(id) {
			b.wrong(t, "claims", "the command %s has no completed claim: %+v", id, b.claims[id])
		}
	}
	for id, c := range b.claims {
		if !commands[id] {
			b.wrong(t, "claims", "%s is claimed and was never emitted", id)
		}
		if !c.Done && b.answered(id) {
			continue // it was under way when the backup was taken
		}
		calls := b.shop.began[id]
		if len(calls) == 0 && b.uncalled(id) {
			continue
		}
		if len(calls) > 1 && c.Effect == atMostOnce && !b.relived { // a backup may know nothing of the first
			b.wrong(t, "effects", "%s may be called once, and was called %d times", id, len(calls))
		}
		if len(calls) == 0 {
			b.wrong(t, "effects", "%s is completed as %s and was never called", id, c.Outcome)
			continue
		}
		if at := calls[len(calls)-1]; at.After(c.Finished) && !stepped {
			b.wrong(t, "effects", "%s (%s) was called %v after its claim was completed", id, c.Effect, at.Sub(c.Finished))
		}
	}
	for id := range b.shop.began {
		if _, ok := b.claims[id]; !ok && !(commands[id] && b.answered(id)) {
			b.wrong(t, "effects", "%s was called and never claimed", id)
		}
	}
	for id, was := range b.completed {
		if now := b.claims[id]; !now.Done || !now.Finished.Equal(was.Finished) {
			b.wrong(t, "claims", "%s (%s) was completed at %v, as a killed process left it, and again at %v by %s", id, was.Effect, was.Finished, now.Finished, now.Owner)
		}
	}
}

// judgeOrders: every order ended as its lot says, with its effects and commands.
func (b *books) judgeOrders(t testing.TB, orders int) {
	t.Helper()
	effects, _ := b.shop.callsOf()
	commands := b.commandsOf(t)
	sent := map[string]int{}
	for _, ev := range b.events {
		sent[ev.ID[strings.LastIndexByte(ev.ID, ' ')+1:]]++ // without its source, or its stream
	}
	for i := range orders {
		id, l := tortureName(i), lotOf(i)
		for n := range l.says {
			if sent[eventID(id, n)] == 0 && l.says[n] != unread {
				b.wrong(t, "events", "%s was acknowledged by the stream, and is not in it", eventID(id, n))
			}
		}
		in := b.instances[edda.Key{Tenant: "default", Saga: l.saga, Correlation: id}]
		switch {
		case b.operated && l.gone:
			if in != nil {
				b.wrong(t, "retention", "%s is still there", id)
			}
		case in == nil && l.ends != "":
			b.wrong(t, "ends", "%s has no instance", id)
		case in != nil && (in.Status != l.ends || in.Reason != l.reason || in.Generation != 1 || len(in.Incidents) > 0):
			b.wrong(t, "ends", "%s ended %s because %q, want %s because %q", id, in.Status, in.Reason, l.ends, l.reason)
		}
		if !l.wants(effects[id]) {
			b.wrong(t, "effects", "%s had %v, want %v", id, effects[id], l.effects)
		}
		if !slices.Equal(commands[id], l.commands) {
			b.wrong(t, "commands", "%s sent %v, want %v", id, commands[id], l.commands)
		}
		b.judgeTimer(t, id, l, in)
	}
}

// judgeTimer: a timer had its effect once, and one that repeats as often as it was to.
func (b *books) judgeTimer(t testing.TB, id string, l lot, in *edda.Instance) {
	t.Helper()
	name, want := "fired", "1"
	switch l.name {
	case "unpaid", "tallied":
	case "nudged", "beaten":
		name, want = "n", "3"
	default:
		return
	}
	if in == nil {
		return
	}
	if got := field(in.State, name); got != want {
		b.wrong(t, "timers", "that of %s fired %s times, want %s", id, got, want)
	}
}

// commandsOf lists the commands for each aggregate, in the order in which they
// were emitted.
func (b *books) commandsOf(t testing.TB) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, k := range b.keys {
		for _, r := range b.records[k] {
			for _, o := range r.Outputs {
				if o.Word == "command" {
					_, name, _ := strings.Cut(o.Name, ".")
					out[o.To] = append(out[o.To], name)
				}
			}
		}
	}
	return out
}

// same compares with the books of an undisturbed run of the same events: the
// ends, the fates, and the ids of whatever an event or a timer set off. What a
// result set off has another trigger there; the model knows its ids.
func (b *books) same(t testing.TB, calm *books, orders int) {
	t.Helper()
	calm.told = map[string]int{}
	calm.judge(t, orders, false)
	if len(calm.events) != len(b.events) {
		t.Fatalf("the undisturbed run had %d events, this one %d", len(calm.events), len(b.events))
	}
	mine, theirs := b.fatesOf(), calm.fatesOf()
	for _, ev := range b.events {
		if !slices.Equal(apart(mine[placeOf(ev)]), apart(theirs[placeOf(ev)])) {
			b.wrong(t, "not as undisturbed", "event %s at %d: %v, and %v undisturbed", ev.ID, ev.Seq, mine[placeOf(ev)], theirs[placeOf(ev)])
		}
	}
	for k, in := range b.instances {
		other := calm.instances[k]
		if other == nil || other.Status != in.Status || other.Reason != in.Reason || !bytes.Equal(other.State, in.State) ||
			!bytes.Equal(other.Result, in.Result) {
			b.wrong(t, "not as undisturbed", "%s is %+v, and %+v undisturbed", k, in, other)
		}
		if a, c := derived(b.records[k]), derived(calm.records[k]); !slices.Equal(a, c) {
			b.wrong(t, "not as undisturbed", "%s emitted %v, and %v undisturbed", k, a, c)
		}
	}
	if len(calm.instances) != len(b.instances) {
		b.wrong(t, "not as undisturbed", "%d instances, and %d undisturbed", len(b.instances), len(calm.instances))
	}
}

// apart leaves out that an event was held: whether it came before the operator
// did, or after, is not the same in every run.
func apart(fates []edda.Fate) []edda.Fate {
	return slices.DeleteFunc(slices.Clone(fates), func(f edda.Fate) bool { return f == edda.FateHeld })
}

// derived lists what events and timers emitted. An instance's time never goes
// back, and an id begins with it: once a result or an operator has moved it on,
// only the rest of the id is the same in every run.
func derived(records []store.Record) (ids []string) {
	const timeOf = len("01a1fffb-d727")
	moved := false
	for _, r := range inputs(records) {
		input := r.Event.Kind == edda.KindTimer || r.Event.Kind == edda.KindEvent && slices.Contains(eventStreams, r.Event.Stream)
		moved = moved || !input
		for _, id := range r.Work {
			switch {
			case input && moved:
				ids = append(ids, id[timeOf:])
			case input:
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// The figures of a report.

func (b *books) transitions() (n int) {
	for _, records := range b.records {
		n += len(records)
	}
	return n
}

func (b *books) works() (n int) {
	for _, records := range b.records {
		for _, r := range records {
			n += len(r.Work)
		}
	}
	return n
}

func (b *books) fired() (n int) {
	for _, records := range b.records {
		for _, r := range records {
			if r.Event.Kind == edda.KindTimer {
				n++
			}
		}
	}
	return n
}

func (b *books) commits() uint64 { return b.last }

// fates counts how the events ended.
func (b *books) fates() map[edda.Fate]int {
	fates, out := b.fatesOf(), map[edda.Fate]int{}
	for _, ev := range b.events {
		got := fates[placeOf(ev)]
		if len(got) == 0 {
			out[edda.FateIgnored]++
			continue
		}
		for _, f := range got {
			out[f]++
		}
	}
	return out
}
