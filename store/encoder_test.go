package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/oklog/ulid/v2"

	"edda"
)

// TestEncodedChangesEqualPlainChanges holds the rows of an encoder against those of
// the same change without one.
func TestEncodedChangesEqualPlainChanges(t *testing.T) {
	plain, ahead := open(t, t.TempDir(), Options{}), open(t, t.TempDir(), Options{})
	defer plain.stop()
	defer ahead.stop()
	var enc Encoder
	for round := range 3 { // the encoder's memory is used again
		var c, e Change
		for i := range 40 {
			step := working(fmt.Sprint(round, "-", i), 1, fmt.Sprint("c", round, "-", i))
			c.Transitions = append(c.Transitions, step)
			e.Encoded = append(e.Encoded, enc.Transition(&c.Transitions[i]))
		}
		id := fmt.Sprint("r", round)
		claim := edda.Claim{Tenant: "acme", CommandID: id, Effect: "pay", Done: true, Outcome: edda.Succeeded, Result: json.RawMessage(`{"n":1}`)}
		echo := edda.Work{ID: "echo-" + id, Kind: edda.WorkResult, From: key("1"), Name: "pay", Payload: json.RawMessage(`{}`)}
		c.Claims, c.Work = []edda.Claim{claim}, []edda.Work{echo}
		e.Encoded = append(e.Encoded, enc.Result(&claim, &echo))
		plain.commit(t, c)
		ahead.commit(t, e)
		if n := e.Encoded[0].Size(); n < 100 {
			t.Errorf("a transition of %d bytes", n)
		}
		enc.Reset()
		same(t, "instances", must(ahead.Instances(Query{Limit: 1000})), must(plain.Instances(Query{Limit: 1000})))
		same(t, "work", works(must(ahead.Outbox(ulid.ULID{}, 1000))), works(must(plain.Outbox(ulid.ULID{}, 1000))))
		was, known, err := ahead.Claim("acme", id)
		if err != nil || !known || string(was.Result) != `{"n":1}` {
			t.Errorf("claim %+v %v %v", was, known, err)
		}
	}
}

// works is the work of rows, whose ids differ with the clock.
func works(rows []Row) (out []edda.Work) {
	for _, r := range rows {
		out = append(out, r.Work)
	}
	return out
}

func TestAnUnwritableTransitionFailsItsChange(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	defer db.stop()
	var enc Encoder
	bad := working("1", 1, "c")
	bad.Instance.Status = ""
	c := Change{Encoded: []Encoded{enc.Transition(&bad)}}
	if err := db.Commit(t.Context(), c); !errors.Is(err, edda.Poison) {
		t.Errorf("the change that cannot be written: %v", err)
	}
}

// TestAnArenaKeepsOnePiece lets an arena grow and checks that its next use needs no more memory.
func TestAnArenaKeepsOnePiece(t *testing.T) {
	var a arena
	rows, source := make([][]byte, 0, 1000), bytes.Repeat([]byte{7}, 700)
	fill := func(n int) {
		for i := range n {
			rows = append(rows, a.keep(append(append(a.begin(leastRoom), byte(i)), source[:i%700]...)))
		}
	}
	fill(1000)
	for i, r := range rows {
		if r[0] != byte(i) || !bytes.Equal(r[1:], source[:i%700]) {
			t.Fatalf("row %d was overwritten", i)
		}
	}
	a.reset()
	rows = rows[:0]
	if n := testing.AllocsPerRun(10, func() { fill(1000); a.reset(); rows = rows[:0] }); n > 0 {
		t.Errorf("%v allocations in the memory of the round before", n)
	}
	a.keep(append(a.begin(1), make([]byte, 2*keptBytes)...))
	if a.reset(); cap(a.last) > keptBytes {
		t.Errorf("%d bytes are kept", cap(a.last))
	}
}

// TestReleasedMemoryIsOverwritten shows that a reader of rows that were reset is noticed.
func TestReleasedMemoryIsOverwritten(t *testing.T) {
	var a arena
	row := a.keep(append(a.begin(10), "precious"...))
	a.reset()
	if string(row) == "precious" {
		t.Error("the row is still readable")
	}
}
