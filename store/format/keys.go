package format

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"edda"
)

// A text ends with 0x00 0x01, and a zero byte in it is written 0x00 0xFF. So no text is a prefix
// of another, and a shorter one sorts first.
const (
	escape     = 0x00
	terminator = 0x01
	escaped    = 0xFF
)

// TimeSize is the length of a time.
const TimeSize = 12

// MaxKey bounds keys. It is below bbolt's limit of 32768 bytes by the length of a time or number
// that some keyspaces put beside the key of an instance.
const MaxKey = 32<<10 - 64

// ErrKey says that a key cannot be decoded.
var ErrKey = errors.New("malformed key")

// AppendText appends a text.
func AppendText(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		b = append(b, s[i])
		if s[i] == escape {
			b = append(b, escaped)
		}
	}
	return append(b, escape, terminator)
}

// CutText decodes a text and returns the bytes after it.
func CutText(b []byte) (string, []byte, error) {
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
			return "", nil, ErrKey
		}
	}
	return "", nil, ErrKey
}

// AppendTime appends seconds since 1970 with the sign bit flipped, then nanoseconds, so that all
// times sort, the zero time included.
func AppendTime(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix())^(1<<63))
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}

// CutTime decodes a time and returns the bytes after it.
func CutTime(b []byte) (time.Time, []byte, error) {
	if len(b) < TimeSize {
		return time.Time{}, nil, ErrKey
	}
	sec := int64(binary.BigEndian.Uint64(b) ^ (1 << 63))
	return time.Unix(sec, int64(binary.BigEndian.Uint32(b[8:]))).UTC(), b[TimeSize:], nil
}

// AppendKey appends the three texts of a key.
func AppendKey(b []byte, k edda.Key) []byte {
	return AppendText(AppendText(AppendText(b, k.Tenant), k.Saga), k.Correlation)
}

// CutKey decodes the key of an instance and returns the bytes after it.
func CutKey(b []byte) (k edda.Key, rest []byte, err error) {
	if k.Tenant, b, err = CutText(b); err != nil {
		return k, nil, err
	}
	if k.Saga, b, err = CutText(b); err != nil {
		return k, nil, err
	}
	k.Correlation, b, err = CutText(b)
	return k, b, err
}

// InstanceKey is the key of a row that an instance has once.
func InstanceKey(k edda.Key) []byte { return Texts(k.Tenant, k.Saga, k.Correlation) }

// EntryKey is the key of the n-th row of an instance: of a queued event, or of a part of its state.
func EntryKey(key []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(key[:len(key):len(key)], n)
}

// CutEntryKey decodes a key of [EntryKey].
func CutEntryKey(b []byte) (k edda.Key, n uint64, err error) {
	k, b, err = CutKey(b)
	if err != nil || len(b) != 8 {
		return k, 0, ErrKey
	}
	return k, binary.BigEndian.Uint64(b), nil
}

// DueKey is a key of the due index: a time and the key of an instance.
func DueKey(t time.Time, key []byte) []byte {
	return AppendDue(make([]byte, 0, TimeSize+len(key)), t, key)
}

// AppendDue appends a [DueKey].
func AppendDue(b []byte, t time.Time, key []byte) []byte { return append(AppendTime(b, t), key...) }

// CutDue decodes a [DueKey].
func CutDue(b []byte) (t time.Time, k edda.Key, err error) {
	if t, b, err = CutTime(b); err != nil {
		return t, k, err
	}
	if k, b, err = CutKey(b); err == nil && len(b) > 0 {
		err = ErrKey
	}
	return t, k, err
}

// Texts is a key of texts.
func Texts(parts ...string) []byte {
	size := 0
	for _, p := range parts {
		size += len(p) + len([]byte{escape, terminator})
	}
	b := make([]byte, 0, size)
	for _, p := range parts {
		b = AppendText(b, p)
	}
	return b
}

// ManifestKey is the key of a manifest's text.
func ManifestKey(m edda.Manifest) []byte {
	b := binary.BigEndian.AppendUint32(Texts(m.Saga), uint32(m.Version))
	return AppendText(b, m.Hash)
}

// DeadKey is the key of a dead letter.
func DeadKey(t time.Time, id string) []byte { return AppendText(AppendTime(nil, t), id) }

// PrefixEnd is the first key after all that begin with prefix, which ends with a text.
func PrefixEnd(prefix []byte) []byte {
	b := append([]byte(nil), prefix...)
	b[len(b)-1]++
	return b
}

// CheckKey refuses a key that is too long.
func CheckKey(what string, key []byte) error {
	if len(key) > MaxKey {
		return fmt.Errorf("%s is %d bytes long, more than %d", what, len(key), MaxKey)
	}
	return nil
}

// Pointer is the place of a history row: the day of its commit, the commit's number, and its
// number within the commit. The zero pointer points to no row, because commits count from 1.
type Pointer struct {
	Day    uint32 // since 1970
	Commit uint64
	N      uint32
}

// PointerSize is the length of a pointer.
const PointerSize = 16

// Append appends the pointer.
func (p Pointer) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, p.Day)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, p.Commit), p.N)
}

// Before reports whether a row is older than another. The zero pointer is before all others.
func (p Pointer) Before(other Pointer) bool {
	return bytes.Compare(p.Append(nil), other.Append(nil)) < 0
}

// Key is the key of the row within the bucket of its day.
func (p Pointer) Key() []byte { return p.Append(nil)[PartSize:] }

// CutPointer decodes a pointer.
func CutPointer(b []byte) Pointer {
	return Pointer{
		Day:    binary.BigEndian.Uint32(b),
		Commit: binary.BigEndian.Uint64(b[4:]),
		N:      binary.BigEndian.Uint32(b[12:]),
	}
}

// PartSize is the length of the name of a bucket of a day or an hour.
const PartSize = 4

// DayKey names the bucket of a day in the history.
func DayKey(day uint32) []byte { return binary.BigEndian.AppendUint32(nil, day) }

// DayOf is the day of a time, counted from 1970.
func DayOf(t time.Time) uint32 { return uint32(max(0, t.Unix()) / (24 * 60 * 60)) }

// HourKey names the bucket of an hour in the claims.
func HourKey(hour uint32) []byte { return binary.BigEndian.AppendUint32(nil, hour) }

// HourOf is the hour of a time, counted from 1970.
func HourOf(t time.Time) uint32 { return uint32(max(0, t.Unix()) / (60 * 60)) }

// ClaimHour is the hour whose bucket has a claim: that of the claim, but not before the time in
// the command's id. So a reader that knows the id alone looks through few hours.
func ClaimHour(claimed time.Time, commandMillis uint64) uint32 {
	return max(HourOf(claimed), uint32(commandMillis/HourMillis))
}

// HourMillis is an hour in milliseconds.
const HourMillis = 60 * 60 * 1000

// CommandMillis is the time in an id that is a UUIDv7, in milliseconds; 0 for other ids.
func CommandMillis(id string) (ms uint64) {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return 0
	}
	for _, b := range u[:6] {
		ms = ms<<8 | uint64(b)
	}
	return ms
}

// EndedKey is a key of the index of ends, which finds finished instances by saga, status and the
// time of the commit that finished them: an event may be as old as the stream it was read from.
func EndedKey(status edda.Status, clock uint64, k edda.Key) []byte {
	b := AppendTime(Texts(k.Saga, string(status)), Stamp{Clock: clock}.Time())
	return AppendKey(b, k)
}

// EndKey is a key of the index of ends.
type EndKey struct {
	Saga   string
	Status edda.Status
	Time   time.Time
	Key    edda.Key
}

// CutEnded decodes a key of [EndedKey].
func CutEnded(b []byte) (e EndKey, err error) {
	var status string
	if e.Saga, b, err = CutText(b); err != nil {
		return e, err
	}
	if status, b, err = CutText(b); err != nil {
		return e, err
	}
	e.Status = edda.Status(status)
	if e.Time, b, err = CutTime(b); err != nil {
		return e, err
	}
	if e.Key, b, err = CutKey(b); err == nil && len(b) > 0 {
		err = ErrKey
	}
	return e, err
}

// Place is the pointer as a text for callers of the store.
func (p Pointer) Place() string { return base64.RawURLEncoding.EncodeToString(p.Append(nil)) }

// CutPlace decodes a text of [Pointer.Place]. Other texts are a Permanent error.
func CutPlace(text string) (Pointer, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != PointerSize {
		return Pointer{}, edda.Classify(edda.Permanent, "%q is no place in a history", text)
	}
	return CutPointer(raw), nil
}
