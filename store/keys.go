package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"edda"
	"edda/store/wal"
)

// Keys are sequences of parts that sort as their parts do, one after the other,
// whatever bytes a part holds. FORMAT.md describes them for readers of the file.

// A text part ends with 0x00 0x01; a zero byte inside it is written 0x00 0xFF,
// so no part is a prefix of another and a shorter text sorts first.
const (
	escape     = 0x00
	terminator = 0x01
	escaped    = 0xFF
)

// timeSize is the length of an encoded time.
const timeSize = 12

// maxKey keeps every row key below bbolt's limit of 32768 bytes, with room for
// the time or number that some keyspaces put beside the instance's key.
const maxKey = 32<<10 - 64

var errKey = errors.New("malformed key")

func appendText(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		b = append(b, s[i])
		if s[i] == escape {
			b = append(b, escaped)
		}
	}
	return append(b, escape, terminator)
}

// cutText reads one text part and returns what follows it.
func cutText(b []byte) (string, []byte, error) {
	if i := bytes.IndexByte(b, escape); i >= 0 && i+1 < len(b) && b[i+1] == terminator {
		return string(b[:i]), b[i+2:], nil // nothing in it is escaped
	}
	var out []byte
	for i := 0; i+1 < len(b); i++ {
		if b[i] != escape {
			out = append(out, b[i])
			continue
		}
		switch b[i+1] {
		case terminator:
			return string(out), b[i+2:], nil
		case escaped:
			out = append(out, escape)
			i++
		default:
			return "", nil, errKey
		}
	}
	return "", nil, errKey
}

// appendTime writes seconds since 1970 with the sign bit flipped, then
// nanoseconds: every time.Time has its place, the zero time among them.
func appendTime(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix())^(1<<63))
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}

func cutTime(b []byte) (time.Time, []byte, error) {
	if len(b) < timeSize {
		return time.Time{}, nil, errKey
	}
	sec := int64(binary.BigEndian.Uint64(b) ^ (1 << 63))
	return time.Unix(sec, int64(binary.BigEndian.Uint32(b[8:]))).UTC(), b[timeSize:], nil
}

func appendKey(b []byte, k edda.Key) []byte {
	return appendText(appendText(appendText(b, k.Tenant), k.Saga), k.Correlation)
}

func cutKey(b []byte) (k edda.Key, rest []byte, err error) {
	if k.Tenant, b, err = cutText(b); err != nil {
		return k, nil, err
	}
	if k.Saga, b, err = cutText(b); err != nil {
		return k, nil, err
	}
	k.Correlation, b, err = cutText(b)
	return k, b, err
}

// instanceKey is a key of a keyspace that has one row per instance.
func instanceKey(k edda.Key) []byte { return texts(k.Tenant, k.Saga, k.Correlation) }

func entryKey(key []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(key[:len(key):len(key)], n)
}

// cutPart reads what entryKey wrote for a part of a state.
func cutPart(k []byte) (of edda.Key, n uint64, err error) {
	of, rest, err := cutKey(k)
	if err == nil && len(rest) != 8 {
		err = errKey
	}
	if err != nil {
		return of, 0, fmt.Errorf("part %x: %w", k, err)
	}
	return of, binary.BigEndian.Uint64(rest), nil
}

func dueKey(t time.Time, key []byte) []byte {
	return appendDue(make([]byte, 0, timeSize+len(key)), t, key)
}

func appendDue(b []byte, t time.Time, key []byte) []byte { return append(appendTime(b, t), key...) }

func cutDue(b []byte) (Due, error) {
	t, rest, err := cutTime(b)
	if err != nil {
		return Due{}, err
	}
	k, rest, err := cutKey(rest)
	if err == nil && len(rest) > 0 {
		err = errKey
	}
	return Due{Time: t, Key: k}, err
}

func texts(parts ...string) []byte {
	size := 0
	for _, p := range parts {
		size += len(p) + len([]byte{escape, terminator})
	}
	b := make([]byte, 0, size)
	for _, p := range parts {
		b = appendText(b, p)
	}
	return b
}

func manifestKey(m edda.Manifest) []byte {
	b := binary.BigEndian.AppendUint32(texts(m.Saga), uint32(m.Version))
	return appendText(b, m.Hash)
}

func deadKey(t time.Time, id string) []byte { return appendText(appendTime(nil, t), id) }

// after is the first key behind everything that starts with the parts in
// prefix, which ends in a terminator.
func after(prefix []byte) []byte {
	b := append([]byte(nil), prefix...)
	b[len(b)-1]++
	return b
}

func checkKey(what string, key []byte) error {
	if len(key) > maxKey {
		return fmt.Errorf("%s is %d bytes long, more than %d", what, len(key), maxKey)
	}
	return nil
}

// pointer is the place of one history row: the day of its commit, the commit's
// number, and its place in the commit. The zero pointer is none: commits count from 1.
type pointer struct {
	Day    uint32 // since 1970
	Commit uint64
	N      uint32
}

const pointerSize = 16

func (p pointer) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, p.Day)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, p.Commit), p.N)
}

// before tells whether a row is older than another; none is older than any.
func (p pointer) before(other pointer) bool {
	return bytes.Compare(p.append(nil), other.append(nil)) < 0
}

// key is the row's key within the bucket of its day.
func (p pointer) key() []byte { return p.append(nil)[partSize:] }

func cutPointer(b []byte) pointer {
	return pointer{
		Day:    binary.BigEndian.Uint32(b),
		Commit: binary.BigEndian.Uint64(b[4:]),
		N:      binary.BigEndian.Uint32(b[12:]),
	}
}

// partSize is the length of the name of a droppable bucket.
const partSize = 4

// partOf is the bucket of a day or an hour. What else lies there nobody of us
// wrote: edda doctor tells, too.
func partOf(name keyspace, space *wal.Bucket, key []byte) (*wal.Bucket, error) {
	part := space.Bucket(key)
	if part == nil || len(key) != partSize {
		return nil, fmt.Errorf("%s: %x is no bucket of a day or an hour: %w", name, key, errKey)
	}
	return part, nil
}

// dayKey and hourKey name the droppable buckets of history and claims.
func dayKey(day uint32) []byte { return binary.BigEndian.AppendUint32(nil, day) }

func dayOf(t time.Time) uint32 { return uint32(max(0, t.Unix()) / (24 * 60 * 60)) }

func hourKey(hour uint32) []byte { return binary.BigEndian.AppendUint32(nil, hour) }

func hourOf(t time.Time) uint32 { return uint32(max(0, t.Unix()) / (60 * 60)) }
