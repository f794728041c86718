package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"edda/store/format"
	"edda/store/wal"
)

func TestOpenRefuses(t *testing.T) {
	tests := map[string]struct {
		prepare func(t *testing.T, path string)
		want    string
	}{
		"a newer format": {
			prepare: func(t *testing.T, path string) { edit(t, path, format.Meta, "format", "7") },
			want:    "was written by a newer edda (format 7, this one reads 4): use that version or restore a backup",
		},
		"a format before the first release": {
			prepare: func(t *testing.T, path string) { edit(t, path, format.Meta, "format", "3") },
			want:    "was written before the first release (format 3, this one reads 4), and no released version reads it: choose another --data, or restore a backup of format 4",
		},
		"no format": {
			prepare: func(t *testing.T, path string) { edit(t, path, format.Meta, "format", "seven") },
			want:    `is not a store of edda: its format is "seven": choose another --data`,
		},
		"another program's bbolt file": {
			prepare: func(t *testing.T, path string) { edit(t, path, "raft", "k", "v") },
			want:    "is not a store of edda: choose another --data",
		},
		"text": {
			prepare: func(t *testing.T, path string) { write(t, path, strings.Repeat("not a database\n", 2000)) },
			want:    "is not a store, or is damaged (invalid database): choose another --data or restore a backup",
		},
		"a few bytes": {
			prepare: func(t *testing.T, path string) { write(t, path, "x") },
			want:    "is not a store, or is damaged (invalid database): choose another --data or restore a backup",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			test.prepare(t, path)
			before := must(os.ReadFile(path))
			_, err := Open(dir, Options{})
			if err == nil || !strings.HasSuffix(err.Error(), test.want) || !strings.HasPrefix(err.Error(), path) {
				t.Errorf("got  %v\nwant %s %s", err, path, test.want)
			}
			if string(before) != string(must(os.ReadFile(path))) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestOpenRefusesAFileInUse(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	db := open(t, dir, Options{})
	_, err := Open(dir, Options{})
	want := "another process holds " + filepath.Join(dir, FileName) + ": stop it, or choose another --data"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	db.stop()
	open(t, dir, Options{}).stop()
}

func TestOpenRefusesAFileAsFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	write(t, path, "")
	_, err := Open(path, Options{})
	if want := "open the store " + path + ": not a directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestOpenCreatesNoStoreBesideAWAL: otherwise the missing store file would be noticed much later.
func TestOpenCreatesNoStoreBesideAWAL(t *testing.T) {
	for what, lose := range map[string]func(path string) error{
		"gone":  os.Remove,
		"empty": func(path string) error { return os.Truncate(path, 0) },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, FileName)
		db := open(t, dir, Options{})
		db.begun(t, key("1"), 1)
		if err := wal.EachWAL(path, path+".kept", os.Link); err != nil {
			t.Fatal(err)
		}
		db.stop()
		if err := errors.Join(lose(path), wal.EachWAL(path+".kept", path, os.Rename)); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, Options{})
		if want := path + "-log-0 is the log of a store that is not beside it: move it to where that is, or put that back"; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
		if fileSize(path) != 0 {
			t.Errorf("%s: there is a new store", what)
		}
	}
}

// TestOpenFinishesAnInterruptedCreation: the file has no keyspace.
func TestOpenFinishesAnInterruptedCreation(t *testing.T) {
	dir := t.TempDir()
	file := must(bolt.Open(filepath.Join(dir, FileName), 0o600, nil))
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	db := open(t, dir, Options{})
	if db.ID() == "" {
		t.Error("no store id")
	}
	db.check(t)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// edit writes one row past the store.
func edit(t *testing.T, path string, name format.Keyspace, k, v string) {
	t.Helper()
	file := must(bolt.Open(path, 0o600, nil))
	err := file.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(name))
		if err != nil {
			return err
		}
		return b.Put([]byte(k), []byte(v))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
