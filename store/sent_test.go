package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
)

// sending is a store from which rows are sent, and what was.
type sending struct {
	*opened
	t    *testing.T
	dir  string
	o    Options
	now  time.Time
	kept time.Time // what is older is not
	n    int
}

func newSending(t *testing.T) *sending {
	s := &sending{t: t, dir: t.TempDir(), now: noon}
	s.o = Options{Now: func() time.Time { return s.now }, KeepSent: func() time.Time { return s.kept }, flushAt: 4 << 10}
	s.opened = open(t, s.dir, s.o)
	return s
}

func (s *sending) again() {
	s.t.Helper()
	s.stop()
	s.opened = open(s.t, s.dir, s.o)
}

func (s *sending) put(kind edda.WorkKind) string {
	s.t.Helper()
	s.n++
	id := fmt.Sprintf("w%03d", s.n)
	k := edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}
	s.commit(s.t, Change{Work: []edda.Work{{Kind: kind, ID: id, Name: "Told", From: k, Time: s.now, Payload: []byte(`"` + strings.Repeat("x", 600) + `"`)}}})
	return id
}

// send takes all rows out that are there.
func (s *sending) send() {
	s.t.Helper()
	rows, err := s.Outbox(ulid.ULID{}, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, row := range rows {
		if row.Work.Kind != edda.WorkEffect {
			s.commit(s.t, Change{Delivered: []ulid.ULID{row.ID}, Marks: []edda.Mark{{Stream: "S", Seq: 1, ID: row.Work.ID, Time: s.now}}})
		}
	}
}

func (s *sending) want(what string, since time.Time, want ...string) {
	s.t.Helper()
	var got []string
	if err := s.Sent(since, func(r Row) error {
		got = append(got, r.Work.ID)
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: %v was sent, want %v", what, got, want)
	}
}

func TestSentFindsRemovedRows(t *testing.T) {
	s := newSending(t)
	var sent []string
	for range 30 { // some tables' worth
		sent = append(sent, s.put(edda.WorkFact))
		s.send()
	}
	s.put(edda.WorkEffect) // stays
	waits := s.put(edda.WorkFact)
	s.want("while it runs", noon, sent...)
	s.again()
	s.want("after a stop", noon, sent...)
	s.put(edda.WorkFact)
	s.send() // what waited, and this, which is not flushed
	sent = append(sent, waits, fmt.Sprintf("w%03d", s.n))
	waits = s.put(edda.WorkFact)
	s.put(edda.WorkEffect)
	if _, err := s.Compact(context.Background(), func(int) {}); err != nil {
		t.Fatal(err)
	}
	s.put(edda.WorkEffect) // begins a log in the place of that of the old file
	s.want("after a compaction", noon, sent...)
	s.send()
	s.want("when all was sent", noon, append(sent, waits)...)
	s.commit(s.t, Change{Marks: []edda.Mark{{Stream: "T", Seq: 2, ID: "t"}, {Stream: "U", Seq: 3, ID: "u"}}})
	s.commit(s.t, Change{Marks: []edda.Mark{{Stream: "T"}}}) // is at no message any more
	marks, err := s.Marks()
	if err != nil || len(marks) != 2 || marks[0].ID != waits || marks[1].ID != "u" {
		t.Errorf("marks %v, %v", marks, err)
	}
	s.check(t)
}

// TestSentFindsRowsThatWaitedLong: also if the WAL file of their commit is no longer kept.
func TestSentFindsRowsThatWaitedLong(t *testing.T) {
	s := newSending(t)
	late := s.put(edda.WorkFact)
	s.now = noon.Add(TellAfter + time.Second)
	s.send()
	s.want("since it was sent", s.now, late)
	s.now = s.now.Add(TellAfter)
	young := s.put(edda.WorkFact)
	s.now = s.now.Add(TellAfter)
	s.send()
	s.want("since then", s.now)
	s.want("before", noon, late, late, young)
}

func TestARestoreHasNoSentRowsOfAnother(t *testing.T) {
	s := newSending(t)
	for range 20 {
		s.put(edda.WorkFact)
		s.send()
	}
	var out bytes.Buffer
	snapshot := must(s.Snapshot())
	if err := snapshot.WriteTo(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	snapshot.Close()
	s.stop()
	if _, err := Restore(context.Background(), save(t, out.Bytes()), s.dir, true, nil, nil); err != nil {
		t.Fatal(err)
	}
	s.again()
	s.want("by the one that was restored", noon)
}

func TestANewStoreHasNoSentRowsOfAnother(t *testing.T) {
	s := newSending(t)
	for range 20 {
		s.put(edda.WorkFact)
		s.send()
	}
	s.stop()
	if err := os.Remove(filepath.Join(s.dir, FileName)); err != nil {
		t.Fatal(err)
	}
	s.again()
	s.want("by the new one", noon)
}

// TestSentFindsResentRowsAtTheirNewTime: another power cut may follow before they are synced.
func TestSentFindsResentRowsAtTheirNewTime(t *testing.T) {
	s := newSending(t)
	first, second := s.put(edda.WorkFact), s.put(edda.WorkFact)
	s.send()
	waits := s.put(edda.WorkFact)
	var rows []Row
	if err := s.Sent(noon, func(r Row) error {
		rows = append(rows, r)
		return nil
	}); err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	still, err := s.Outbox(ulid.ULID{}, 10)
	if err != nil || len(still) != 1 {
		t.Fatal(still, err)
	}
	s.now = noon.Add(time.Hour)
	s.commit(t, Change{Sent: append(rows, still...)})
	for _, when := range []string{"while it runs", "after a stop"} {
		s.want(when, s.now, first, second)
		if left, err := s.Outbox(ulid.ULID{}, 10); err != nil || len(left) != 1 || left[0].Work.ID != waits {
			t.Errorf("%s: the outbox has %v, %v", when, left, err)
		}
		s.check(t)
		s.again()
	}
}
