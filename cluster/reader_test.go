package cluster

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"edda"
	"edda/internal/testkit"
)

// written is a log that the product's code has appended: two epochs, one record of two parts, and
// the first part of a record that its owner did not finish.
func written() []Message {
	var log []Message
	add := func(after Mark, r Record, parts int) Mark {
		a, order := Begin(after, r, 4)
		for range parts {
			log = append(log, order.Message)
			a, order = a.Acked(uint64(len(log)))
		}
		return order.Mark
	}
	at := add(Mark{}, Mark{}.Own("A", 1), 1)
	at = add(at, at.Next(Entry, "A", 1, []byte("one")), 1)
	at = add(at, at.Next(Entry, "A", 1, []byte("second")), 2)
	add(at, at.Next(Entry, "A", 1, []byte("unfinished")), 1)
	at, own := barrier(at, uint64(len(log)), "B", 1)
	at = add(at, own, 1)
	add(at, at.Next(Entry, "B", 1, nil), 1)
	return log
}

func TestReaderYieldsWholeRecords(t *testing.T) {
	r := NewReader(Mark{})
	var got []string
	for i, m := range written() {
		rec, whole, err := r.Message(uint64(i+1), m)
		testkit.Must(t, err)
		if whole && rec.Kind == Entry {
			got = append(got, rec.Node+":"+string(rec.Entry))
		}
	}
	if want := []string{"A:one", "A:second", "B:"}; !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
	}
	if m := r.Mark(); m.Seq != 7 || m.LSN != 3 || m.Epoch != 2 || r.Seq() != 7 {
		t.Errorf("ends at %+v", m)
	}
}

func TestReaderRefusesWhatIsNotSound(t *testing.T) {
	tests := []struct {
		name   string
		word   string
		change func(log []Message) []Message
	}{
		{"a flipped bit", "message 2 of the log is not sound: record 1 has the checksum",
			func(l []Message) []Message { l[1].Entry = []byte("onf"); return l }},
		{"a record left out", "record 2 follows record 0",
			func(l []Message) []Message { return slices.Delete(l, 1, 2) }},
		{"a record twice", "record 1 follows record 1",
			func(l []Message) []Message { return slices.Insert(l, 2, l[1]) }},
		{"another chain", "follows a record with checksum",
			func(l []Message) []Message { l[1].Prev++; return l }},
		{"a part left out", "part 2 of 2 of record 2 follows 0 parts",
			func(l []Message) []Message { return slices.Delete(l, 2, 3) }},
		{"a part of another record", "part 2 of 2 of record 2 follows 1 parts",
			func(l []Message) []Message { l[3].Sum++; return l }},
		{"an unfinished record in the same epoch", "part 1 of 3 of record 3 follows 1 parts",
			func(l []Message) []Message { return slices.Delete(l, 3, 4) }},
		{"an older owner behind a newer one", "writes in epoch 1, which is not the epoch 2",
			func(l []Message) []Message { l[6].Epoch = 1; return l }},
		{"an owner without a later epoch", "takes over with epoch 1 behind epoch 1",
			func(l []Message) []Message { l[5].Epoch = 1; return l }},
		{"an epoch without an owner", "writes in epoch 2",
			func(l []Message) []Message { return slices.Delete(l, 4, 6) }},
		{"a kind of a newer version", `unknown kind "bag"`,
			func(l []Message) []Message { l[1].Kind = "bag"; return l }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(Mark{})
			var failed error
			for i, m := range tt.change(written()) {
				if _, _, failed = r.Message(uint64(i+1), m); failed != nil {
					break
				}
			}
			testkit.WantError(t, failed, edda.Permanent, tt.word)
		})
	}
	r := NewReader(Mark{})
	_, _, err := r.Message(2, written()[1])
	if !errors.Is(err, ErrGap) || errors.Is(err, edda.Permanent) {
		t.Errorf("a missing message is %v", err)
	}
}

func TestLooks(t *testing.T) {
	at := Mark{Seq: 5, LSN: 3, Epoch: 2, Sum: 7}
	r := at.Next(Entry, "A", 1, []byte("four and five"))
	a, first := Begin(at, r, 8)
	mine := first.Message
	other := mine
	other.Sum++
	own := Message{Record: Record{Kind: Own, Epoch: 3, LSN: 3, Node: "B"}, Part: 1, Parts: 1}
	tests := []struct {
		name string
		last Last
		want Do
		part int // that is sent
	}{
		{"mine is last", Last{6, mine}, Send, 2},
		{"unchanged", Last{5, Message{Sum: 7, Part: 1, Parts: 1}}, Send, 1},
		{"behind the parts of an unfinished record", Last{5, Message{Record: Record{Prev: 7}, Sum: 9, Part: 1, Parts: 2}}, Send, 1},
		{"lost, and the same number again", Last{5, Message{Record: Record{Epoch: 2}, Sum: 8, Part: 1, Parts: 1}}, Moved, 0},
		{"an earlier end", Last{4, Message{}}, Look, 0},
		{"no message at all", Last{}, Look, 0},
		{"a later epoch", Last{6, own}, Fenced, 0},
		{"another record of the epoch", Last{6, other}, Moved, 0},
		{"mine, at another place", Last{7, mine}, Moved, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, got := a.Looked(tt.last)
			if got.Do != tt.want || got.Message.Part != tt.part {
				t.Errorf("got %+v", got)
			}
		})
	}
	b, second := a.Acked(6)
	if second.Expected != 6 || !bytes.Equal(second.Message.Entry, []byte(" five")) {
		t.Errorf("the second part is %+v", second)
	}
	_, done := b.Looked(Last{7, second.Message})
	if want := (Mark{Seq: 7, LSN: 4, Epoch: 2, Sum: r.Sum()}); done.Do != Committed || done.Mark != want {
		t.Errorf("got %+v, want %+v", done, want)
	}
	if _, got := b.Looked(Last{6, mine}); got.Do != Send || got.Message.Part != 2 {
		t.Errorf("behind its first part: %+v", got)
	}
	if _, got := b.Looked(Last{6, other}); got.Do != Moved {
		t.Errorf("behind another message: %+v", got)
	}
	if _, strange := b.Acked(9); strange.Do != Look {
		t.Errorf("an acknowledgement of another sequence: %+v", strange)
	}
}

// memory is a log in memory. Before each append another node may be faster.
type memory struct {
	messages []Message
	first    uint64 // that is not trimmed
	rivals   []string
}

func (l *memory) Append(ctx context.Context, after Mark, r Record) (Mark, error) {
	if len(l.rivals) > 0 {
		rival := l.rivals[0]
		l.rivals = l.rivals[1:]
		if _, err := Take(ctx, l, Mark{}, rival, 1, func(Mark, Record) error { return nil }); err != nil {
			return Mark{}, err
		}
	}
	a, order := Begin(after, r, 4)
	for {
		if order.Expected != uint64(len(l.messages)) {
			if _, order = a.Looked(Last{uint64(len(l.messages)), l.messages[len(l.messages)-1]}); order.Do == Fenced {
				return Mark{}, ErrFenced
			}
			return Mark{}, ErrMoved
		}
		l.messages = append(l.messages, order.Message)
		if a, order = a.Acked(uint64(len(l.messages))); order.Do == Committed {
			return order.Mark, nil
		}
	}
}

func (l *memory) Read(_ context.Context, after Mark, until uint64, visit Visit) error {
	r := NewReader(after)
	for seq := after.Seq + 1; seq <= until; seq++ {
		rec, whole, err := r.Message(seq, l.messages[seq-1])
		if err != nil {
			return err
		}
		if whole {
			if err := visit(r.Mark(), rec); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *memory) End(context.Context) (Last, error) {
	if n := len(l.messages); n > 0 {
		return Last{uint64(n), l.messages[n-1]}, nil
	}
	return Last{}, nil
}

func (l *memory) Find(_ context.Context, lsn uint64) (Mark, error) {
	last, _ := l.End(context.Background())
	return Find(l.first, last, lsn, func(seq uint64) (Message, error) { return l.messages[seq-1], nil })
}

func (l *memory) Trim(context.Context, Mark) error { return nil }

// TestFind: from the mark of an LSN a reader reads all later entries, and no other.
func TestFind(t *testing.T) {
	log := &memory{messages: written(), first: 1}
	var lsns []uint64
	testkit.Must(t, log.Read(t.Context(), Mark{}, uint64(len(log.messages)), func(_ Mark, r Record) error {
		if r.Kind == Entry {
			lsns = append(lsns, r.LSN)
		}
		return nil
	}))
	for lsn := range uint64(len(lsns)) + 1 {
		at, err := log.Find(t.Context(), lsn)
		testkit.Must(t, err)
		var got []uint64
		testkit.Must(t, log.Read(t.Context(), at, uint64(len(log.messages)), func(_ Mark, r Record) error {
			if r.Kind == Entry {
				got = append(got, r.LSN)
			}
			return nil
		}))
		if at.LSN != lsn || !slices.Equal(got, lsns[lsn:]) {
			t.Errorf("behind record %d, at %+v, follow %d; want %d", lsn, at, got, lsns[lsn:])
		}
	}
	if _, err := log.Find(t.Context(), uint64(len(lsns))+1); !errors.Is(err, ErrAbsent) {
		t.Errorf("a record behind the end: %v", err)
	}
	log.first = 3
	if _, err := log.Find(t.Context(), 0); !errors.Is(err, ErrTrimmed) {
		t.Errorf("a record that is trimmed: %v", err)
	}
	if at, err := (&memory{}).Find(t.Context(), 7); err != nil || at != (Mark{LSN: 7}) {
		t.Errorf("in an empty log: %+v, %v", at, err)
	}
}

func TestTakeReadsAgainWhatWasFaster(t *testing.T) {
	log := &memory{messages: written(), rivals: []string{"C", "D"}}
	var visited []string
	at, err := Take(t.Context(), log, Mark{}, "E", 1, func(_ Mark, r Record) error {
		visited = append(visited, string(r.Kind)+" "+r.Node)
		return nil
	})
	testkit.Must(t, err)
	want := []string{"own A", "rec A", "rec A", "own B", "rec B", "own D", "own C"}
	if !slices.Equal(visited, want) {
		t.Errorf("visited %q, want %q", visited, want)
	}
	if at.Epoch != 5 || at.LSN != 3 || at.Seq != uint64(len(log.messages)) {
		t.Errorf("owns at %+v", at)
	}
	broken := errors.New("broken")
	_, err = Take(t.Context(), log, Mark{}, "F", 1, func(Mark, Record) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("an error of visit is %v", err)
	}
}

// TestTakeRefusesALogThatWentOnWithoutItsEnd: the message at the place of this node's last one is another one.
func TestTakeRefusesALogThatWentOnWithoutItsEnd(t *testing.T) {
	log := &memory{messages: written()}
	last := log.messages[len(log.messages)-1]
	after := Mark{Seq: uint64(len(log.messages)), LSN: last.LSN, Epoch: last.Epoch, Sum: last.Sum + 1, State: last.State}
	_, err := Take(t.Context(), log, after, "E", 1, func(Mark, Record) error { return nil })
	if !errors.Is(err, ErrLost) || !errors.Is(err, edda.Permanent) || len(log.messages) != len(written()) {
		t.Errorf("%v, and the log has %d messages", err, len(log.messages))
	}
}
