package cluster

import (
	"errors"
	"fmt"

	"edda"
)

// ErrGap says that a message is missing between two others. The log has trimmed it, or the
// connection lost it.
var ErrGap = errors.New("a message of the log is missing")

// Reader makes records of the messages of a log, in order. It returns whole and sound records only:
// LSNs without gaps, an unbroken chain of checksums, and in the epoch of the last Own record.
type Reader struct {
	mark  Mark
	seq   uint64 // of the last message
	parts []Message
}

// NewReader reads on behind a mark.
func NewReader(after Mark) *Reader { return &Reader{mark: after, seq: after.Seq} }

// Mark is the place behind the last whole record.
func (r *Reader) Mark() Mark { return r.mark }

// Seq is the sequence of the last message, which may be a part of an unfinished record.
func (r *Reader) Seq() uint64 { return r.seq }

// Message takes the next message. whole says that it completes a record. ErrGap leaves the reader as
// it was, for the missing message. Any other error is edda.Permanent and ends the reading, because the
// protocol writes no such log.
func (r *Reader) Message(seq uint64, m Message) (rec Record, whole bool, err error) {
	if seq != r.seq+1 {
		return Record{}, false, fmt.Errorf("message %d follows message %d: %w", seq, r.seq, ErrGap)
	}
	r.seq = seq
	if m.Kind == Own {
		r.parts = nil // an owner that ended left them: they are void
	}
	if m.Part != len(r.parts)+1 || m.Part > m.Parts || m.Part > 1 && !r.continues(m) {
		return Record{}, false, unsound(seq,
			fmt.Errorf("part %d of %d of record %d follows %d parts", m.Part, m.Parts, m.LSN, len(r.parts)))
	}
	if err := r.mark.Follows(m.Record); err != nil {
		return Record{}, false, unsound(seq, err)
	}
	if m.Part < m.Parts {
		r.parts = append(r.parts, m)
		return Record{}, false, nil
	}
	rec = r.join(m)
	if sum := rec.Sum(); sum != m.Sum {
		return Record{}, false, unsound(seq,
			fmt.Errorf("record %d has the checksum %08x, and should have %08x", rec.LSN, sum, m.Sum))
	}
	r.parts = nil
	r.mark = Mark{Seq: seq, LSN: rec.LSN, Epoch: rec.Epoch, Sum: m.Sum, State: rec.State}
	return rec, true, nil
}

// continues reports whether a message is the next part of the unfinished record.
func (r *Reader) continues(m Message) bool {
	before := r.parts[len(r.parts)-1]
	before.Part = m.Part
	return m.same(before)
}

func (r *Reader) join(last Message) Record {
	rec := last.Record
	if len(r.parts) == 0 {
		return rec
	}
	rec.Entry = nil
	for _, p := range r.parts {
		rec.Entry = append(rec.Entry, p.Entry...)
	}
	rec.Entry = append(rec.Entry, last.Entry...)
	return rec
}

func unsound(seq uint64, err error) error {
	return edda.Classify(edda.Permanent, "message %d of the log is not sound: %w", seq, err)
}
