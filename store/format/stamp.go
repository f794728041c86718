package format

import (
	"encoding/binary"
	"time"

	"github.com/oklog/ulid/v2"
)

// Stamp identifies a commit: a number without gaps, and a time in milliseconds that never steps
// back. It is a row of [Meta].
type Stamp struct {
	Commit uint64
	Clock  uint64
}

// StampSize is the length of a stamp.
const StampSize = 16

// Bytes is the stamp as bytes.
func (s Stamp) Bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s.Commit), s.Clock)
}

// CutStamp decodes a stamp. Bytes of another length are the zero stamp.
func CutStamp(b []byte) Stamp {
	if len(b) != StampSize {
		return Stamp{}
	}
	return Stamp{Commit: binary.BigEndian.Uint64(b), Clock: binary.BigEndian.Uint64(b[8:])}
}

// Next is the stamp of the next commit.
func (s Stamp) Next(now time.Time) Stamp {
	return Stamp{Commit: s.Commit + 1, Clock: max(s.Clock, uint64(max(0, now.UnixMilli())))}
}

// Time is the time of the commit.
func (s Stamp) Time() time.Time { return time.UnixMilli(int64(s.Clock)).UTC() }

// RowID is the id of the n-th outbox row of the commit: its time, its number, and n. Ids sort in
// commit order.
func (s Stamp) RowID(n uint32) (id ulid.ULID) {
	binary.BigEndian.PutUint64(id[4:], s.Commit)
	_ = id.SetTime(s.Clock & ulid.MaxTime())
	binary.BigEndian.PutUint32(id[12:], n)
	return id
}

// CommitOf is the number of the commit that wrote an outbox row.
func CommitOf(id ulid.ULID) uint64 { return binary.BigEndian.Uint64(id[4:]) & (1<<48 - 1) }
