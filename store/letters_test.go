package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"edda"
)

// bigLetter is the dead letter of an event without a key, as a stream has it.
func bigLetter(tenant string, n int) edda.DeadLetter {
	payload := json.RawMessage(`"` + strings.Repeat("x", 900) + `"`)
	return edda.DeadLetter{
		ID: fmt.Sprintf("%s%03d", tenant, n), Reason: edda.DeadNoKey, Key: edda.Key{Tenant: tenant, Saga: "order"},
		Event: edda.Event{Kind: edda.KindEvent, ID: fmt.Sprintf("e%d", n), Tenant: tenant, Stream: "AGGREGATE_EVENTS", Seq: uint64(n), Payload: payload},
	}
}

func (o *opened) letter(t *testing.T, id string) edda.DeadLetter {
	t.Helper()
	d, found, err := o.DeadLetter(id)
	if err != nil || !found {
		t.Fatalf("dead letter %s: %v, %v", id, found, err)
	}
	return d
}

// bytesOf is the sum of the rows of dead letters, as they are written.
func (o *opened) bytesOf(t *testing.T) (n int) {
	t.Helper()
	all, err := o.DeadLetters("", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		b, err := new(valueEncoder).encode(0, &all[i])
		if err != nil {
			t.Fatal(err)
		}
		n += len(b)
	}
	return n
}

func TestDeadLettersOfBigEventsWithoutAKeyFillTheStore(t *testing.T) {
	const most = 8 << 10
	dir := t.TempDir()
	db := open(t, dir, Options{MaxDeadBytes: most})
	whole := 0
	for n := 1; n <= 40; n += 4 { // four in a change: the bound holds within one, too
		db.commit(t, Change{Dead: []edda.DeadLetter{bigLetter("acme", n), bigLetter("acme", n+1), bigLetter("acme", n+2)},
			Transitions: []edda.Transition{{Key: key("A"), Event: edda.Event{ID: "x"}, Fate: edda.FateDead, Dead: new(bigLetter("acme", n+3))}}})
	}
	for n := 1; n <= 40; n++ {
		want := bigLetter("acme", n)
		got := db.letter(t, want.ID)
		if got.Cut == 0 {
			whole++
		} else {
			want.Cut, want.Event.Payload = len(want.Event.Payload), nil
		}
		same(t, want.ID, got, want)
	}
	if whole < 5 || whole > 8 {
		t.Errorf("%d of 40 letters are whole: a bound of %d has room for seven", whole, most)
	}
	db.commit(t, Change{Dead: []edda.DeadLetter{bigLetter("zeta", 1)}})
	if db.letter(t, "zeta001").Cut != 0 {
		t.Error("the letters of another tenant count")
	}
	want, sum := db.Queues(), db.bytesOf(t)
	if want.Cut != 40-whole {
		t.Errorf("%d are counted as cut, not %d", want.Cut, 40-whole)
	}
	counted := func() {
		t.Helper()
		if n := db.DeadBytes(); n != sum {
			t.Errorf("%d bytes, not %d", n, sum)
		}
	}
	counted()
	db.stop()
	db = open(t, dir, Options{MaxDeadBytes: most})
	same(t, "counts when it is opened again", db.Queues(), want)
	counted()
	db.commit(t, Change{Dead: []edda.DeadLetter{bigLetter("acme", 41)}})
	if db.letter(t, "acme041").Cut == 0 {
		t.Error("a store that was opened again has forgotten its bound")
	}

	var gone []string
	for n := range 40 {
		gone = append(gone, fmt.Sprintf("acme%03d", n+1))
	}
	db.commit(t, Change{Transitions: []edda.Transition{{Key: key("A"), Event: edda.Event{ID: "y"}, Fate: edda.FateHandled, Resolved: gone}}})
	db.commit(t, Change{Dead: []edda.DeadLetter{bigLetter("acme", 42)}})
	if db.letter(t, "acme042").Cut != 0 {
		t.Error("there is room again, and the payload is left out")
	}
	if n := db.DeadBytes(); n != db.bytesOf(t) {
		t.Errorf("%d bytes; the letters have %d", n, db.bytesOf(t))
	}
}

func TestADeadLetterWrittenAgainIsCountedOnce(t *testing.T) {
	db := open(t, t.TempDir(), Options{MaxDeadBytes: 3 << 10})
	for range 5 {
		db.commit(t, Change{Dead: []edda.DeadLetter{bigLetter("acme", 1)}})
	}
	if n := db.DeadBytes(); db.letter(t, "acme001").Cut != 0 || n != db.bytesOf(t) {
		t.Errorf("%d bytes, and the letter is %+v", n, db.letter(t, "acme001"))
	}
}

func TestThePayloadIsKeptIfItIsNowhereElse(t *testing.T) {
	db := open(t, t.TempDir(), Options{MaxDeadBytes: 1})
	for name, change := range map[string]func(*edda.DeadLetter){
		"no stream":   func(d *edda.DeadLetter) { d.Event.Stream = "" },
		"no sequence": func(d *edda.DeadLetter) { d.Event.Seq = 0 },
		"rejected work": func(d *edda.DeadLetter) {
			d.Work, d.Reason = &edda.Work{ID: "w", Payload: d.Event.Payload}, edda.DeadRejected
		},
		"redriven with --data": func(d *edda.DeadLetter) { d.Event.Redriven, d.Event.Redrives = true, 1 },
	} {
		d := bigLetter("acme", 1)
		d.ID = name
		change(&d)
		db.commit(t, Change{Dead: []edda.DeadLetter{d}})
		same(t, name, db.letter(t, name), d)
	}
}

func TestTheRawMessageOfADeadLetterIsCut(t *testing.T) {
	db := open(t, t.TempDir(), Options{MaxDeadBytes: 1})
	d := bigLetter("acme", 1) // whose it is stands in the event alone
	d.Key, d.Reason, d.Event.Payload, d.Raw = edda.Key{}, edda.DeadUndecodable, nil, bytes.Repeat([]byte("r"), 1000)
	db.commit(t, Change{Dead: []edda.DeadLetter{d}})
	d.Cut, d.Raw = 1000, nil
	same(t, "the letter", db.letter(t, d.ID), d)
	if n := db.DeadBytes(); n != db.bytesOf(t) {
		t.Errorf("%d bytes; the letters have %d", n, db.bytesOf(t))
	}
}

func TestAnEncryptedStoreCountsItsDeadLettersToo(t *testing.T) {
	dir := t.TempDir()
	_, sealing := keysetFile(t)
	o := Options{MaxDeadBytes: 2 << 10, Seal: sealing}
	db := open(t, dir, o)
	for n := range 4 {
		db.commit(t, Change{Dead: []edda.DeadLetter{bigLetter("acme", n+1)}})
	}
	n, cut := db.bytesOf(t), db.Queues().Cut
	db.stop()
	db = open(t, dir, o)
	if got := db.DeadBytes(); got != n || cut == 0 || db.Queues().Cut != cut {
		t.Errorf("%d bytes, not %d; %d cut, before %d", got, n, db.Queues().Cut, cut)
	}
}

func TestTheDeadLetterLimitHoldsWithinOneChange(t *testing.T) {
	const most = 5 << 10
	db := open(t, t.TempDir(), Options{MaxDeadBytes: most})
	var all []edda.DeadLetter
	for n := range 20 {
		all = append(all, bigLetter("acme", n+1))
	}
	db.commit(t, Change{Dead: all})
	if cut := db.Queues().Cut; cut < 15 || cut == 20 {
		t.Errorf("%d of 20 letters are cut: there is room for four", cut)
	}
}

// TestUnreadableMessagesCountForTheirTenant: their tenant is in the event only.
func TestUnreadableMessagesCountForTheirTenant(t *testing.T) {
	db := open(t, t.TempDir(), Options{MaxDeadBytes: 1500})
	for i, tenant := range []string{"acme", "zeta", "acme"} {
		d := bigLetter(tenant, i+1)
		d.Key, d.Reason, d.Event.Malformed = edda.Key{}, edda.DeadUndecodable, edda.DeadUndecodable
		db.commit(t, Change{Dead: []edda.DeadLetter{d}})
		if cut := db.letter(t, d.ID).Cut > 0; cut != (i == 2) {
			t.Errorf("letter %d, of %s: cut is %v", i+1, tenant, cut)
		}
	}
}
