package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// TestADamagedWALIsReported: with what to do. Every row must have a bucket and every record its
// place in the order.
func TestADamagedWALIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(*bolt.Tx) error
		want   string
	}{
		"a mark":        {func(raw *bolt.Tx) error { return raw.Bucket(walBucket).Put(rowFlushed, []byte("x")) }, "the row folded has 1 bytes"},
		"an id":         {func(raw *bolt.Tx) error { return raw.Bucket(walBucket).Put(rowID, []byte("x")) }, "the row id has 1 bytes"},
		"a lost bucket": {func(raw *bolt.Tx) error { return raw.DeleteBucket([]byte(flat)) }, `there is no bucket "` + flat + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, i := twoTables(t)
			path := i.put(t)
			raw, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			if err := raw.Update(test.damage); err != nil {
				t.Fatal(err)
			}
			_, err = Load(raw, byHand)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasSuffix(err.Error(), "restore a backup") {
				t.Errorf("%v, want %s: restore a backup", err, test.want)
			}
		})
	}
}

func TestAnUnreadableWALIsNotCalledDamaged(t *testing.T) {
	newer := func(path string) error { return versioned(path, walVersion+1) }
	flusher := func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }
	for what, test := range map[string]struct {
		do   func(path string) error
		want string
	}{
		"of a newer version": {newer, "-log-1 was written by a newer edda (log version 2, this one reads 1): use that version, or restore a backup"},
		"that fails":         {flusher, "-log-1: is a directory: nothing says that it is damaged; look after the disk, and start again"},
	} {
		l, i := twoTables(t)
		path := filepath.Join(t.TempDir(), "x.db")
		for end, b := range i {
			if err := os.WriteFile(path+end, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := test.do(path + "-log-1"); err != nil {
			t.Fatal(err)
		}
		says := func(way string, err error) {
			t.Helper()
			if err == nil || !strings.HasSuffix(err.Error(), test.want) || strings.Contains(err.Error(), "is damaged:") {
				t.Errorf("%s, %s: %v, want %s", what, way, err, test.want)
			}
		}
		_, err := openFile(path, byHand, nil)
		says("it is opened", err)
		says("its file is replaced", l.db.Replaces(path))
	}
	denied := unread("x", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}).Error()
	if want := "the log cannot be read: open x: permission denied: change its owner to that of the store's file, who is to run edda"; denied != want {
		t.Errorf("%s, want %s", denied, want)
	}
}

// versioned gives a file of a WAL another version, as one has that was written whole.
func versioned(path string, version uint32) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(b[len(walMagic):], version)
	binary.BigEndian.PutUint32(b[headerUsed:], crc32.Checksum(b[:headerUsed], castagnoli))
	return os.WriteFile(path, b, 0o600)
}

// TestAnUnknownVersionIsNamed: with what to do. An impossible version is damage.
func TestAnUnknownVersionIsNamed(t *testing.T) {
	for is, want := range map[uint32]string{
		9: "x-log-0 was written by a newer edda (log version 9, this one reads 5): use that version, or restore a backup",
		3: "x-log-0 was written by an older edda (log version 3, this one reads 5): open the store with that version and stop it in good order, so that nothing is left in the log, or restore a backup",
		0: "the log is damaged: x-log-0: its version is 0, which no edda has written: restore a backup",
	} {
		if got := unread("x-log-0", otherVersion("log", is, 5)).Error(); got != want {
			t.Errorf("version %d: %s\nwant %s", is, got, want)
		}
	}
	for is, want := range map[byte]string{
		9: "transaction 2 of the log was written by a newer edda (entry version 9, this one reads 1): use that version, or restore a backup",
		0: "the log is damaged: transaction 2: its version is 0, which no edda has written: restore a backup",
	} {
		entry := append([]byte{is}, make([]byte, entryHeader)...)
		if err := replayed(nil).pass(2, entry); err == nil || err.Error() != want {
			t.Errorf("an entry of version %d: %v\nwant %s", is, err, want)
		}
	}
	l, i := twoTables(t)
	path := filepath.Join(t.TempDir(), "x.db")
	for end, b := range i {
		if err := os.WriteFile(path+end, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := versioned(path+"-log-1", 0); err != nil {
		t.Fatal(err)
	}
	_, err := openFile(path, byHand, nil)
	for way, err := range map[string]error{"it is opened": err, "its file is replaced": l.db.Replaces(path)} {
		if err == nil || !strings.HasPrefix(err.Error(), "the log is damaged") || !strings.HasSuffix(err.Error(), "which no edda has written: restore a backup") {
			t.Errorf("%s: %v", way, err)
		}
	}
}

// TestPutRefusesWhatBboltWouldRefuse: because rows in the WAL must be flushed.
func TestPutRefusesWhatBboltWouldRefuse(t *testing.T) {
	db, err := openFile(filepath.Join(t.TempDir(), "x.db"), small, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *Tx) error {
		b := tx.Bucket([]byte(flat))
		for what, err := range map[string]error{
			"an empty key":    b.Put(nil, []byte("x")),
			"a large key":     b.Put(make([]byte, bolt.MaxKeySize+1), nil),
			"a bucket within": func() error { _, err := b.CreateBucket([]byte("x")); return err }(),
			"no bucket":       b.DeleteBucket([]byte("x")),
		} {
			if err == nil {
				t.Errorf("%s is taken", what)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.View(func(tx *Tx) error { return tx.Bucket([]byte(flat)).Put([]byte("k"), nil) }); err == nil {
		t.Error("a reader writes")
	}
}

// TestRefusedChangesSayWhy: with the errors of bbolt.
func TestRefusedChangesSayWhy(t *testing.T) {
	db, err := openFile(filepath.Join(t.TempDir(), "x.db"), small, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	refuse := func(b *Bucket, want error) {
		t.Helper()
		_, made := b.CreateBucket([]byte("b"))
		for what, err := range map[string]error{
			"put": b.Put([]byte("k"), nil), "delete": b.Delete([]byte("k")), "create a bucket": made, "delete a bucket": b.DeleteBucket([]byte("b")),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
	}
	var closed *Bucket
	if err := db.Update(func(tx *Tx) error {
		closed = tx.Bucket([]byte(nested))
		inner, err := closed.CreateBucket([]byte("i"))
		if err := errors.Join(err, closed.DeleteBucket([]byte("i"))); err != nil {
			return err
		}
		refuse(inner, berrors.ErrBucketNotFound)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	refuse(closed, berrors.ErrTxClosed)
	if err := db.View(func(tx *Tx) error {
		refuse(tx.Bucket([]byte(nested)), berrors.ErrTxNotWritable)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// FuzzAnEntry reads what anybody may have put into a WAL: it is rows, or an error.
func FuzzAnEntry(f *testing.F) {
	var e encoder
	space := &Bucket{space: []byte(flat)}
	inner := &Bucket{space: []byte(nested), inner: []byte("0001")}
	framed, err := e.encode(7, []written{
		{space, newRow(put, []byte("k"), bytes.Repeat([]byte("v"), 100), 7)}, {space, newRow(tombstone, []byte("l"), nil, 7)},
		{inner, newRow(put, []byte("m"), nil, 7)},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Clone(framed[recordHeader:]))
	f.Add([]byte{})
	f.Add([]byte{entryVersion, plain, 0, 0, 0, 0, byte(put), 1, 'k', 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, entry []byte) {
		if len(entry) >= entryHeader { // whoever writes it makes the checksum right
			binary.BigEndian.PutUint32(entry[2:], checksum(7, entry[entryHeader:]))
		}
		rows, err := content(7, entry, new([]byte))
		if err != nil {
			return
		}
		_ = eachRow(rows, func(space, _ []byte, k kind, key, value []byte) error {
			if k < put || k > dropped || len(key) == 0 || space == nil || k != put && value != nil {
				t.Errorf("kind %d, key %q, value %q", k, key, value)
			}
			return nil
		})
	})
}

// TestEntriesRoundTrip: compressed or not, with the last row of each key only.
func TestEntriesRoundTrip(t *testing.T) {
	for _, value := range []string{"x", strings.Repeat("long and alike ", 100)} {
		var e encoder
		b := &Bucket{space: []byte(nested), inner: []byte("0001")}
		before := newRow(put, []byte("k"), []byte("before"), 3)
		before.stale = true
		framed, err := e.encode(3, []written{{b, before}, {b, newRow(put, []byte("k"), []byte(value), 3)}, {b, newRow(tombstone, []byte("l"), nil, 3)}})
		if err != nil {
			t.Fatal(err)
		}
		entry := framed[recordHeader:]
		rows, err := content(3, entry, new([]byte))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := eachRow(rows, func(space, inner []byte, k kind, key, value []byte) error {
			got += string(space) + "/" + string(inner) + "/" + string(key) + "=" + string(value) + ";"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := "nested/0001/k=" + value + ";nested/0001/l=;"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if _, err := content(4, entry, new([]byte)); err == nil {
			t.Error("it is taken for another transaction's")
		}
	}
}
