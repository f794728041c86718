package store

import (
	"strconv"
	"testing"

	"edda"
	"edda/internal/jsonvalue/jsonvaluetest"
	"edda/store/format"
)

func parts() []any {
	return []any{&format.HistoryRow{}, &format.InstancePart{}, &format.EntryPart{}, &format.LetterPart{}, &format.TenantPart{}}
}

func TestRowsAreWrittenAndReadAsByEncodingJSON(t *testing.T) { jsonvaluetest.Suite(t, parts()...) }

func FuzzAppendRow(f *testing.F) { jsonvaluetest.FuzzAppend(f, parts()...) }

func FuzzDecodeRow(f *testing.F) {
	jsonvaluetest.FuzzDecode(f, append(parts(), &edda.Instance{}, &edda.Entry{}, &edda.DeadLetter{})...)
}

// The values of a change lie beside one another: who appends to one, as opening
// an encrypted one does, leaves the next as it is.
func TestValuesOfOneChangeShareNoMemory(t *testing.T) {
	e := valueEncoder{arena: arena{size: 1 << 10}}
	var all [][]byte
	for range 40 { // more than there is room for in one piece
		b, err := e.encode(format.PointerSize, &edda.Checkpoint{Stream: "s", Seq: uint64(len(all))})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	for i, b := range all {
		copy(b, "the pointer's 16") // as the committer does
		_ = append(b, "more than the pointer of the next has room for"...)
		all[i] = b[format.PointerSize:]
	}
	for i, b := range all {
		if want := `{"stream":"s","seq":` + strconv.Itoa(i) + `,"time":"0001-01-01T00:00:00Z","created":"0001-01-01T00:00:00Z"}`; string(b) != want {
			t.Errorf("value %d is %s, not %s", i, b, want)
		}
	}
}
