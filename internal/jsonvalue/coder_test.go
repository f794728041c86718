package jsonvalue_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/internal/jsonvalue"
	"edda/internal/jsonvalue/jsonvaluetest"
)

func known() []any {
	return []any{
		&edda.Key{}, &edda.Event{}, &edda.Checkpoint{}, &edda.Mark{}, &edda.Work{}, &edda.Claim{}, &edda.Output{}, &edda.Entry{}, &edda.Instance{}, &edda.Cell{},
		&edda.Step{}, &edda.EachRound{}, &edda.Frame{}, &edda.Undo{}, &edda.Timer{}, &edda.Thread{}, &edda.SeqPosition{}, &edda.Scope{}, &edda.Incident{},
		&map[string]json.RawMessage{},
	}
}

func TestFieldsAreWrittenAndReadAsByEncodingJSON(t *testing.T) { jsonvaluetest.Suite(t, known()...) }

func FuzzAppend(f *testing.F) { jsonvaluetest.FuzzAppend(f, known()...) }

func FuzzDecode(f *testing.F) { jsonvaluetest.FuzzDecode(f, known()...) }

// A text or a value of a large row that is kept does not retain the row.
func TestSmallPartsDoNotKeepALargeRow(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	data, err := jsonvalue.Marshal(&edda.Work{ID: "w1", Correlation: long, Payload: json.RawMessage(`"p"`), Trace: "t"})
	if err != nil {
		t.Fatal(err)
	}
	kept := make([]edda.Work, 64)
	before := heap()
	for i := range kept {
		var w edda.Work
		if err := jsonvalue.Unmarshal(data, &w); err != nil || w.Correlation != long {
			t.Fatal(err)
		}
		kept[i] = edda.Work{ID: w.ID, Payload: w.Payload, Trace: w.Trace}
	}
	if n := heap() - before; n > 2<<20 {
		t.Errorf("%d bytes are kept by %d small parts of rows", n, len(kept))
	}
	runtime.KeepAlive(kept)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// encoding/json reads a struct that has no list of fields.
func TestUnknownStructsAreReadByEncodingJSON(t *testing.T) {
	var letter edda.DeadLetter
	if err := jsonvalue.Unmarshal([]byte(`{"id":"d1","event":{"id":"e1"}}`), &letter); err != nil || letter.ID != "d1" || letter.Event.ID != "e1" {
		t.Errorf("%+v, %v", letter, err)
	}
	got, err := jsonvalue.Marshal(&letter)
	var back edda.DeadLetter
	if err != nil || json.Unmarshal(got, &back) != nil || !reflect.DeepEqual(back, letter) {
		t.Errorf("%s, %v", got, err)
	}
}

// Values that were read before encoding/json took over do not remain.
func TestAValueReadBeforeAnErrorDoesNotRemain(t *testing.T) {
	var e edda.Entry
	if err := jsonvalue.Unmarshal([]byte(`{"event":{"type":"a"},"event":{"id":"new"},"Expires":null}`), &e); err != nil || e.Event.Type != "a" || e.Event.ID != "new" {
		t.Errorf("%+v, %v", e, err)
	}
	var w edda.Work
	if err := jsonvalue.Unmarshal([]byte(`{"id":"w1","kind":"effect","from":`), &w); err == nil || !reflect.DeepEqual(w, edda.Work{}) {
		t.Errorf("%+v, %v", w, err)
	}
}

// The values of one row are adjacent in memory: an append to one does not change the next.
func TestAppendingToAValueLeavesTheNextUnchanged(t *testing.T) {
	var s edda.Step
	if err := jsonvalue.Unmarshal([]byte(`{"input":{"a":1},"result":{"b":2},"error":{"c":3}}`), &s); err != nil {
		t.Fatal(err)
	}
	_ = append(s.Input, "more"...)
	_ = append(s.Result, "more"...)
	if string(s.Input) != `{"a":1}` || string(s.Result) != `{"b":2}` || string(s.Error) != `{"c":3}` {
		t.Errorf("%s %s %s", s.Input, s.Result, s.Error)
	}
}

// Only encoding/json decides how deep a value may be nested.
func TestDeepNestingIsRefusedAsByEncodingJSON(t *testing.T) {
	for _, depth := range []int{jsonvalue.MaxDepth - 1, jsonvalue.MaxDepth, jsonvalue.MaxDepth + 1, 9_999, 10_000, 10_001} {
		deep := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		var got, want edda.Work
		err := jsonvalue.Unmarshal([]byte(`{"payload":`+deep+`}`), &got)
		if wantErr := json.Unmarshal([]byte(`{"payload":`+deep+`}`), &want); (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("%d deep: %v, not %v", depth, err, wantErr)
		}
		_, err = jsonvalue.Marshal(&edda.Work{Payload: json.RawMessage(deep)})
		if _, wantErr := json.Marshal(&edda.Work{Payload: json.RawMessage(deep)}); (err == nil) != (wantErr == nil) {
			t.Errorf("%d deep is written: %v, not %v", depth, err, wantErr)
		}
	}
}

// Texts are scanned in words of eight bytes: a byte that needs an escape is found at each place.
func TestEscapesAreFoundInEveryPlace(t *testing.T) {
	odd := []string{"\"", "\\", "\x00", "\x1f", "\n", "\x7f", "é", "\u2028", "\u2029", "\xff", "\u0080", "<", "\"\x01", "\\\"", "!\"", " \x1f"}
	for length := range 3 * 8 {
		for at := range length + 1 {
			for _, part := range odd {
				text := strings.Repeat("x", at) + part + strings.Repeat("y", length-at)
				sameAsJSON(t, &edda.Work{ID: text, Trace: "t"})
				sameAsJSON(t, &edda.Work{Payload: json.RawMessage(`{"a":"` + text + `"}`)})
				sameAsJSON(t, &edda.Work{Payload: json.RawMessage(`["` + text)})
			}
		}
	}
}

func sameAsJSON(t *testing.T, w *edda.Work) {
	t.Helper()
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	wantErr := enc.Encode(w)
	got, err := jsonvalue.Marshal(w)
	if (err == nil) != (wantErr == nil) || err == nil && string(got) != strings.TrimSuffix(want.String(), "\n") {
		t.Fatalf("%q, %q: %s, %v, not %s, %v", w.ID, w.Payload, got, err, &want, wantErr)
	}
}

// A time is written with its own zone and digits, whatever time was written before it.
func TestTimesAreWrittenWithTheirZone(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	far := time.Date(12026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	for _, times := range [][2]time.Time{
		{at, at}, {at, at.In(time.FixedZone("", 5400))}, {at, at.Add(1)}, {at, {}}, {{}, at}, {at, far}, {at, at}, {{}, {}},
	} {
		sameAsJSON(t, &edda.Work{Time: times[0], NotAfter: times[1]})
	}
	var c jsonvalue.Coder
	first, err := c.Append(nil, &edda.Work{Time: at})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Append(nil, &edda.Work{Time: far}); err == nil {
		t.Error("a year of five digits was written")
	}
	if again, err := c.Append(nil, &edda.Work{Time: at}); err != nil || string(again) != string(first) {
		t.Errorf("%s, %v, not %s", again, err, first)
	}
}

// A value at the address of a valid one is checked again, because it may have changed. An invalid
// value is an error each time.
func TestAValueAtAReusedAddressIsChecked(t *testing.T) {
	payload := json.RawMessage(`{"a":1}`)
	for _, text := range []string{`{"a":1}`, `{"a":x}`, `{"a":2}`, `{"a": }`} {
		copy(payload, text)
		sameAsJSON(t, &edda.Work{Payload: payload})
		s := edda.Step{Input: payload, Result: payload, Error: payload[1:]}
		if _, err := jsonvalue.Marshal(&s); err == nil {
			t.Errorf("%s was written: a part of a value is none", payload[1:])
		}
	}
	more := make([]json.RawMessage, 20)
	for i := range more {
		more[i] = json.RawMessage(`{"n":1}`)
	}
	more[15] = json.RawMessage(`{"n":}`)
	var c jsonvalue.Coder
	for round := range 3 {
		for i := range more {
			if _, err := c.Append(nil, &edda.Work{Payload: more[i]}); (err == nil) != (i != 15) {
				t.Errorf("round %d, value %d: %v", round, i, err)
			}
		}
	}
}

// wide has more fields than a coder has bits for.
type wide struct {
	Many [70]int
	Last map[string]string
}

func (w *wide) Fields(c *jsonvalue.Coder) {
	for i := range w.Many {
		c.IntIf(fmt.Sprint("f", i), &w.Many[i])
	}
	c.NotesIf("Last", &w.Last)
}

// encoding/json merges two maps of one name, also in the 71st field.
func TestARepeatedFieldIsNoticedAfterSixtyFourOthers(t *testing.T) {
	var got, want wide
	data := []byte(`{"Last":{"a":"1"},"Last":{"b":"2"}}`)
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if err := jsonvalue.Unmarshal(data, &got); err != nil || len(want.Last) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("%v (%v), not %v", got.Last, err, want.Last)
	}
}

// A value is checked each time it is written, because its memory may have been reused.
func TestAValueInReusedMemoryIsChecked(t *testing.T) {
	payload := json.RawMessage(`{"a":1}`)
	var c jsonvalue.Coder
	if _, err := c.Append(nil, &edda.Work{Payload: payload}); err != nil {
		t.Fatal(err)
	}
	copy(payload, `{"a"[1]`)
	if got, err := c.Append(nil, &edda.Work{Payload: payload}); err == nil {
		t.Errorf("%s is written as JSON", got)
	}
}
