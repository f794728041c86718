package cluster

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Kind says what a record is. A reader stops at a kind that it does not know.
type Kind string

// The kinds of records. Only an Entry has an LSN of its own; the others repeat the LSN before.
const (
	Own   Kind = "own"  // the first record of an epoch: its node owns the log from here on
	Entry Kind = "rec"  // an entry of the owner's WAL
	Keep  Kind = "keep" // its acknowledgement proves to the owner, after a pause, that it still owns the log
	Seal  Kind = "seal" // the last record of an epoch: its owner hands over
)

// Record is one record of the log.
type Record struct {
	Kind  Kind
	Epoch uint64 // the fencing token: each owner has a later one
	LSN   uint64 // the number of the last WAL entry up to this record, without gaps
	Prev  uint32 // Sum of the record before
	// Node names the run of the process that wrote the record: a node and its start. Two processes of
	// one name would both take the same Own record for theirs.
	Node  string
	Level int // the version of the format that the owner may write
	// State is the checksum of all that the owner's store has applied up to this record. A standby that has
	// another one has other rows.
	State uint32
	// Entry is the WAL entry as it is. That of a Seal is the id of the node that takes over, if the owner chose one.
	Entry []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the checksum of the record. The next record names it, so the checksums are a chain.
func (r Record) Sum() uint32 {
	var b []byte
	for _, n := range []uint64{r.Epoch, r.LSN, uint64(r.Prev), uint64(r.Level), uint64(r.State), uint64(len(r.Kind)), uint64(len(r.Node))} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(append(b, r.Kind...), r.Node...)
	return crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, r.Entry)
}

// Mark is a place in the log: behind a whole record. The zero Mark is the beginning.
type Mark struct {
	Seq   uint64 // of the last message; the compare-and-set names it
	LSN   uint64
	Epoch uint64
	Sum   uint32 // of the last record
	State uint32 // of the last record
}

// Own is the record with which a node takes the log over at a mark.
func (m Mark) Own(node string, level int) Record {
	return Record{Kind: Own, Epoch: m.Epoch + 1, LSN: m.LSN, Prev: m.Sum, State: m.State, Node: node, Level: level}
}

// Next is the record that the owner of the mark's epoch appends next. An entry changes the state: its writer
// sets that.
func (m Mark) Next(kind Kind, node string, level int, entry []byte) Record {
	r := Record{
		Kind: kind, Epoch: m.Epoch, LSN: m.LSN, Prev: m.Sum, State: m.State, Node: node, Level: level, Entry: entry,
	}
	if kind == Entry {
		r.LSN++
	}
	return r
}

// Follows returns an error unless the record may stand directly behind the mark.
func (m Mark) Follows(r Record) error {
	epoch, lsn := m.Epoch, m.LSN
	switch r.Kind {
	case Own:
		if r.Epoch <= m.Epoch {
			return fmt.Errorf("%s takes over with epoch %d behind epoch %d", r.Node, r.Epoch, m.Epoch)
		}
		epoch = r.Epoch
	case Entry:
		lsn++
	case Keep, Seal:
	default:
		return fmt.Errorf("a record of the unknown kind %q: a newer version wrote it", r.Kind)
	}
	switch {
	case r.Epoch != epoch:
		return fmt.Errorf("%s writes in epoch %d, which is not the epoch %d of the log", r.Node, r.Epoch, m.Epoch)
	case r.LSN != lsn:
		return fmt.Errorf("record %d follows record %d", r.LSN, m.LSN)
	case r.Prev != m.Sum:
		return fmt.Errorf("record %d of epoch %d follows a record with checksum %08x, and the log has %08x there",
			r.LSN, r.Epoch, r.Prev, m.Sum)
	case r.Kind != Entry && r.State != m.State:
		return fmt.Errorf("record %d of epoch %d changes no row, and has the state %08x behind %08x", r.LSN, r.Epoch, r.State, m.State)
	}
	return nil
}

// Message is a record, or one part of a record that is too large for one message.
type Message struct {
	Record        // Entry is the part's share
	Sum    uint32 // of the whole record
	Part   int    // from 1
	Parts  int
}

// same reports whether two messages are the same part of the same record. Node and Epoch name the
// writer; the checksum covers the entry.
func (m Message) same(o Message) bool {
	return m.Kind == o.Kind && m.Epoch == o.Epoch && m.LSN == o.LSN && m.Prev == o.Prev && m.Node == o.Node &&
		m.Level == o.Level && m.State == o.State && m.Sum == o.Sum && m.Part == o.Part && m.Parts == o.Parts
}
