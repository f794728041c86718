package wal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"

	"edda/internal/datasync"
)

// The WAL is two files beside the bbolt file: one has the transactions of the active memtable, the
// other those of the immutable memtable until that is flushed. Then the next memtable writes over
// it, because blocks that exist on the disk are synced twice as fast as new ones.
//
// The checksum of a record covers the WAL's id, the number of its transaction and the checksum of the
// record before. Numbers only grow, so a record of an earlier memtable, or a torn one, is never
// taken for a current one.

// walSuffix and the number of a file are added to the name of the bbolt file.
const walSuffix = "-log-"

func walPath(path string, slot int) string { return fmt.Sprint(path, walSuffix, slot) }

// A file begins with a header: magic, u32 version, the WAL's id, u32 number of the
// file, and a CRC-32C of all that. Records follow.
const (
	walMagic   = "edda-log"
	walVersion = 1
	headerSize = 64
	headerUsed = len(walMagic) + 4 + idSize + 4
)

// walID is the random id of a WAL, made with its files. It tells the files of another store, or of an
// earlier WAL, apart.
type walID [idSize]byte

const idSize = 16

func newWALID() (id walID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

func header(id walID, slot int) []byte {
	b := binary.BigEndian.AppendUint32([]byte(walMagic), walVersion)
	b = binary.BigEndian.AppendUint32(append(b, id[:]...), uint32(slot))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return append(b, make([]byte, headerSize-len(b))...)
}

// cutHeader decodes a header: the id, and which of the two files it is.
func cutHeader(b []byte) (id walID, slot int, err error) {
	switch {
	case len(b) < headerSize || !bytes.HasPrefix(b, []byte(walMagic)) || binary.BigEndian.Uint32(b[headerUsed:]) != crc32.Checksum(b[:headerUsed], castagnoli):
		return id, 0, errNoHeader
	case binary.BigEndian.Uint32(b[len(walMagic):]) != walVersion:
		return id, 0, otherVersion("log", binary.BigEndian.Uint32(b[len(walMagic):]), walVersion)
	}
	copy(id[:], b[len(walMagic)+4:])
	return id, int(binary.BigEndian.Uint32(b[len(walMagic)+4+idSize:])), nil
}

// A record is the length of its entry as u32, the number of its transaction as u64, the checksum of
// the record before as u32, its own as u32, and the entry. The checksum covers the WAL's id, the
// bytes before it, and the first bytes of the entry, which has a checksum for the rest.
const recordHeader = 4 + 8 + 4 + 4

type record struct {
	seq       uint64
	prev, sum uint32
	entry     []byte
}

func recordSum(id walID, head, entry []byte) uint32 {
	sum := crc32.Checksum(id[:], castagnoli)
	return crc32.Update(crc32.Update(sum, castagnoli, head[:recordHeader-4]), castagnoli, entry[:entryHeader])
}

// frame fills the header of a record in, before its entry, and returns its checksum.
func frame(b []byte, id walID, seq uint64, prev uint32) uint32 {
	binary.BigEndian.PutUint32(b, uint32(len(b)-recordHeader))
	binary.BigEndian.PutUint64(b[4:], seq)
	binary.BigEndian.PutUint32(b[12:], prev)
	sum := recordSum(id, b, b[recordHeader:])
	binary.BigEndian.PutUint32(b[16:], sum)
	return sum
}

// cutHead decodes the header of a record. Its entry may be torn, and ends with b.
func cutHead(b []byte, id walID) (r record, ok bool) {
	if len(b) < recordHeader+entryHeader {
		return r, false
	}
	n := binary.BigEndian.Uint32(b)
	r = record{seq: binary.BigEndian.Uint64(b[4:]), prev: binary.BigEndian.Uint32(b[12:]), sum: binary.BigEndian.Uint32(b[16:])}
	if n < entryHeader || r.sum != recordSum(id, b, b[recordHeader:]) {
		return r, false
	}
	r.entry = b[recordHeader:min(uint64(len(b)), recordHeader+uint64(n))]
	return r, len(r.entry) == int(n)
}

// cutRecord decodes a record, which must be whole.
func cutRecord(b []byte, id walID) (r record, ok bool) {
	if r, ok = cutHead(b, id); !ok {
		return r, false
	}
	rest := r.entry[entryHeader:]
	return r, binary.BigEndian.Uint32(r.entry[2:]) == checksum(r.seq, rest)
}

// walText is a file of a WAL: the records that follow one another from the start, and the rest.
type walText struct {
	path    string
	id      walID
	slot    int // which of the two its header says it is
	records []record
	rest    []byte
}

func readWAL(path string) (t walText, err error) {
	t.path = path
	b, err := os.ReadFile(path)
	if err != nil {
		return t, err
	}
	if t.id, t.slot, err = cutHeader(b); err != nil {
		return t, err
	}
	t.rest = b[headerSize:]
	for {
		r, ok := cutRecord(t.rest, t.id)
		if n := len(t.records); !ok || n > 0 && (r.seq != t.records[n-1].seq+1 || r.prev != t.records[n-1].sum) {
			return t, nil
		}
		t.records = append(t.records, r)
		t.rest = t.rest[recordHeader+len(r.entry):]
	}
}

// after drops the records that were flushed.
func (t *walText) after(flushed uint64) {
	for len(t.records) > 0 && t.records[0].seq <= flushed {
		t.records = t.records[1:]
	}
}

// beyond finds a record with this number or a later one in the rest: then the records do not end
// with a torn one.
func (t *walText) beyond(seq uint64) (found uint64, ok bool) {
	for b := t.rest; len(b) >= recordHeader+entryHeader; b = b[1:] {
		got := binary.BigEndian.Uint64(b[4:])
		if got < seq || got-seq > math.MaxUint32 { // for most bytes, no checksum is computed
			continue
		}
		// A later record proves it with its header alone: it was written after this one was synced.
		if _, whole := cutRecord(b, t.id); whole || got > seq && headed(b, t.id) {
			return got, true
		}
	}
	return 0, false
}

func headed(b []byte, id walID) bool {
	return binary.BigEndian.Uint32(b[16:]) == recordSum(id, b, b[recordHeader:])
}

// tailRoom is the room after the last record that is synced with it. A file with less was cut off.
const tailRoom = recordHeader + entryHeader

// cutOff reports whether a file lost its end: it ends within the next record, or too close after the
// last one. A record that was being written in a power cut is in room that was synced before, unless
// the file was growing for it, which cannot be told apart.
func (t *walText) cutOff(last uint64) bool {
	if n := len(t.records); n > 0 && t.records[n-1].seq == last && len(t.rest) < tailRoom {
		return true
	}
	r, whole := cutHead(t.rest, t.id)
	return r.entry != nil && !whole && r.seq == last+1
}

// growBytes and maxGrow bound how much a file grows at once; within them it doubles. It grows before
// a record is written, so that a full disk fails before any of the record is there.
const (
	growBytes = 64 << 10
	maxGrow   = 512 << 10
	// keptBytes is the size to which a file is cut that a large transaction made larger.
	keptBytes = 16 << 20
)

var zeros [64 << 10]byte

// walFiles are the two files of an open WAL.
type walFiles struct {
	id    walID
	files [2]*os.File
	sizes [2]int64
	slot  int    // of the active memtable
	end   int64  // where the next record goes
	sum   uint32 // of the last record
	sync  bool
	did   *counters
	pass  func(point string)
}

// createWAL creates the files. It refuses to replace those of another WAL.
func createWAL(path string, o Options, sync bool, did *counters) (l *walFiles, err error) {
	l = &walFiles{id: newWALID(), end: headerSize, sync: sync, did: did, pass: o.passed}
	l.sum = crc32.Checksum(l.id[:], castagnoli)
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for slot := range l.files {
		name := walPath(path, slot)
		f, err := o.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return l, err
		}
		l.files[slot] = f
		l.pass("logCreated")
		if err := l.write(slot, header(l.id, slot), 0); err != nil {
			return l, err
		}
		l.sizes[slot] = headerSize
		if err := l.synced(slot); err != nil {
			return l, err
		}
	}
	if !sync {
		return l, nil
	}
	return l, syncDir(filepath.Dir(path))
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (l *walFiles) write(slot int, b []byte, at int64) error {
	n, err := l.files[slot].WriteAt(b, at)
	l.did.bytes.Add(uint64(n))
	return err
}

func (l *walFiles) synced(slot int) error {
	if !l.sync {
		return nil
	}
	l.did.syncs.Add(1)
	return datasync.Sync(l.files[slot])
}

// append ships a record, writes it after the last, and syncs it if asked. After an error that is unsure
// the record may be on disk, or where it was shipped to; after another it is not. A full disk is found
// before the record is shipped.
func (l *walFiles) append(seq uint64, framed []byte, ship Ship, sync bool) (unsure bool, err error) {
	if err := l.reserve(l.end + int64(len(framed)) + tailRoom); err != nil {
		return false, fmt.Errorf("make room in the log: %w", err)
	}
	if ship == nil {
		return l.put(seq, framed, sync)
	}
	wait := ship(seq, framed[recordHeader:])
	l.pass("logShipped")
	_, err = l.put(seq, framed, sync)
	shipped := wait() // also after an error: the entry is read until it returns
	if shipped != nil {
		shipped = fmt.Errorf("ship the record: %w", shipped)
	}
	l.pass("logAcknowledged")
	return true, errors.Join(err, shipped)
}

// put is append after the file has room.
func (l *walFiles) put(seq uint64, framed []byte, sync bool) (unsure bool, err error) {
	sum := frame(framed, l.id, seq, l.sum)
	if err := l.write(l.slot, framed, l.end); err != nil {
		return false, fmt.Errorf("write to the log: %w", err)
	}
	// gofail: var logWritten struct{}
	l.pass("logWritten")
	if sync {
		if err := l.synced(l.slot); err != nil {
			return true, fmt.Errorf("sync the log: %w", err)
		}
	}
	// gofail: var logSynced struct{}
	l.pass("logSynced")
	l.end, l.sum = l.end+int64(len(framed)), sum
	return false, nil
}

// reserve makes the file that long.
func (l *walFiles) reserve(size int64) error {
	for has := l.sizes[l.slot]; has < size; has = l.sizes[l.slot] {
		until := max(size, has+min(max(has, growBytes), maxGrow))
		for at := has; at < until; at += int64(len(zeros)) {
			if err := l.write(l.slot, zeros[:min(int64(len(zeros)), until-at)], at); err != nil {
				return err
			}
		}
		l.sizes[l.slot] = until
	}
	return nil
}

// turn goes on at the start of the other file, whose records were flushed.
func (l *walFiles) turn() {
	l.slot = 1 - l.slot
	l.end = headerSize
	if l.sizes[l.slot] > keptBytes && l.files[l.slot].Truncate(keptBytes) == nil {
		l.sizes[l.slot] = keptBytes
	}
	// gofail: var logTurned struct{}
	l.pass("logTurned")
}

// close closes the files. All that counts was synced.
func (l *walFiles) close() {
	for _, f := range l.files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// RemoveWAL removes the WAL beside a file, if there is one.
func RemoveWAL(path string) error {
	var all error
	for slot := range 2 {
		if err := os.Remove(walPath(path, slot)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// EachWAL calls fn with the name of each file of the WAL at path, and its name at another path.
func EachWAL(path, other string, fn func(from, to string) error) error {
	for slot := range 2 {
		switch _, err := os.Lstat(walPath(path, slot)); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		default:
			if err := fn(walPath(path, slot), walPath(other, slot)); err != nil {
				return err
			}
		}
	}
	return nil
}

// counters count the writes to disk.
type counters struct{ records, recordBytes, bytes, syncs, flushes, memtables atomic.Uint64 }

// errNoHeader is of a file that is damaged, or that a crash left before its header was written.
var errNoHeader = errors.New("its header is not that of a log")
