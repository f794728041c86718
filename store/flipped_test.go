package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/wal"
)

// soundFile is a store of some hundred pages, closed in order, with an index of ends,
// history, claims and an outbox, and with pages that are free.
func soundFile(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	db := open(t, dir, Options{noSync: true, plain: true})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	for i := range 40 {
		var c Change
		for j := range 10 {
			n := fmt.Sprintf("k%03d", i*10+j)
			tr := step(key(n), 1)
			tr.Instance.State = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat(n, 100))
			tr.Work = []edda.Work{effect(key(n), "c-"+n)}
			c.Transitions = append(c.Transitions, tr)
		}
		db.commit(t, c)
		if i%10 == 9 {
			db.flush(t)
		}
	}
	db.stop()
	return must(os.ReadFile(filepath.Join(dir, FileName)))
}

// places are bits to flip: any of the file, and more of those that say where something
// lies: the heads of pages, and of their elements.
func places(r *rand.Rand, size, n int) (bits []int) {
	const page = 4096
	for i := range n {
		at := r.IntN(size)
		if i%2 == 0 {
			at = at/page*page + r.IntN(160)
		}
		bits = append(bits, min(at, size-1)*8+r.IntN(8))
	}
	return bits
}

// within ends a test that hangs on a damaged file.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s: it hangs", what)
	}
}

// examined tells whether the doctor of a store that nobody holds says anything.
func examined(t *testing.T, data []byte) bool {
	dir := t.TempDir()
	write(t, filepath.Join(dir, FileName), string(data))
	db, err := Open(dir, Options{initialMap: 1 << 15, noSync: true})
	if err != nil {
		return true
	}
	h, err := db.Doctor(context.Background(), nil)
	return errors.Join(append(h.Findings, err, db.Close())...) != nil
}

// led are copies of a file in which the key of a page's first element lies a gigabyte
// away, by page.
func led(good []byte) iter.Seq2[int, []byte] {
	const page = 4096
	return func(yield func(int, []byte) bool) {
		for at := 2 * page; at+page <= len(good); at += page {
			flags, count := binary.NativeEndian.Uint16(good[at+8:]), binary.NativeEndian.Uint16(good[at+10:])
			if binary.NativeEndian.Uint64(good[at:]) != uint64(at/page) || count == 0 || flags != 1 && flags != 2 {
				continue // the middle of a long one, or another kind
			}
			data := bytes.Clone(good)
			data[at+16+3+4*(int(flags)-1)] ^= 0x40 // bit 30 of its place
			if !yield(at/page, data) {
				return
			}
		}
	}
}

func pagesWrong(t *testing.T, data []byte) []error {
	t.Helper()
	path := filepath.Join(t.TempDir(), FileName)
	write(t, path, string(data))
	db, err := openFile(path, Options{initialMap: 1 << 15, noSync: true})
	if err != nil {
		return []error{err}
	}
	found, _ := db.checkFile(true)
	_ = db.Close() // the file is damaged
	return found
}

// served does with a store what a process does, and tells whether anything failed.
func served(t *testing.T, data []byte) bool {
	dir := t.TempDir()
	write(t, filepath.Join(dir, FileName), string(data))
	db, err := Open(dir, Options{initialMap: 1 << 15, noSync: true})
	if err != nil {
		return true
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- db.Run(ctx) }()
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	read := func() {
		for i := range 400 {
			v, err := db.View()
			if note(err); err != nil {
				continue
			}
			_, err = v.Cell(key(fmt.Sprintf("k%03d", i)))
			note(err)
			v.Close()
		}
		_, err := db.Instances(Query{Limit: 1000})
		note(err)
		_, err = db.Outbox(ulid.ULID{}, 1000)
		note(err)
		_, err = db.History(key("k007"), 10)
		note(err)
	}
	read()
	h, err := db.Doctor(context.Background(), nil)
	note(errors.Join(append(h.Findings, err)...))
	for i := range 5 {
		commit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		note(db.Commit(commit, Change{Transitions: []edda.Transition{step(key(fmt.Sprintf("k%03d", i*70)), 2)}}))
		cancel()
	}
	note(db.file.Flush())
	read()
	_, err = db.Compact(context.Background(), nil)
	note(err)
	stop()
	note(<-ended)
	note(db.Close())
	all := errors.Join(errs...)
	if damage, is := errors.AsType[*wal.DamageError](all); is && !strings.Contains(damage.Error(), "restore a backup") {
		t.Errorf("it says not what to do: %v", damage)
	}
	return all != nil
}

// TestTheDoctorRefusesAReadOnlyFileSystem: the store may be on a disk that the system made read-
// only, or on a snapshot.
func TestTheDoctorRefusesAReadOnlyFileSystem(t *testing.T) {
	for name, files := range map[string]map[string][]byte{"after a kill": killed(t, t.TempDir(), 20), "closed in order": {FileName: soundFile(t)}} {
		for _, refusal := range []error{syscall.EROFS, syscall.EACCES} {
			dir := t.TempDir()
			for name, data := range files {
				write(t, filepath.Join(dir, name), string(data))
			}
			db, readOnly, err := OpenToCheck(dir, Options{initialMap: 1 << 15, openFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE) != 0 {
					return nil, &fs.PathError{Op: "open", Path: name, Err: refusal}
				}
				return os.OpenFile(name, flag, mode)
			}})
			if err != nil || !readOnly {
				t.Fatalf("%s, %v: %t %v", name, refusal, readOnly, err)
			}
			h, err := db.Doctor(context.Background(), nil)
			if err := errors.Join(append(h.Findings, err, db.Close())...); err != nil || h.Rows < 20 {
				t.Errorf("%s, %v: %d rows, %v", name, refusal, h.Rows, err)
			}
			for name, data := range files {
				if !bytes.Equal(must(os.ReadFile(filepath.Join(dir, name))), data) {
					t.Errorf("%s was changed", name)
				}
			}
		}
	}
}

// killed is a store as a kill leaves it: its file, and what is in its WAL alone.
func killed(t *testing.T, dir string, commits int) (files map[string][]byte) {
	t.Helper()
	db := open(t, dir, Options{flushAt: 1 << 20})
	for i := range commits {
		db.commit(t, Change{Transitions: []edda.Transition{step(key(fmt.Sprintf("k%03d", i)), 1)}})
	}
	files = map[string][]byte{}
	for _, name := range []string{FileName, FileName + "-log-0", FileName + "-log-1"} {
		files[name] = must(os.ReadFile(filepath.Join(dir, name)))
	}
	db.stop()
	return files
}

// reopened opens the files elsewhere, and tells what it says of a log that was cut,
// and how many instances there are.
func reopened(t *testing.T, files map[string][]byte) (cut string, instances int, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		write(t, filepath.Join(dir, name), string(data))
	}
	db, err := Open(dir, Options{initialMap: 1 << 15})
	if err != nil {
		return "", 0, err
	}
	defer db.Close()
	list, err := db.Instances(Query{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	h, err := db.Doctor(context.Background(), nil)
	if err := errors.Join(append(h.Findings, err)...); (err != nil) != (db.CutWAL() != "") {
		t.Errorf("the doctor says %v, the start %q", err, db.CutWAL())
	}
	return db.CutWAL(), len(list), nil
}

// TestATruncatedWALIsReported: commits were rolled back silently.
func TestATruncatedWALIsReported(t *testing.T) {
	const commits = 20
	const name = FileName + "-log-0"
	files := killed(t, t.TempDir(), commits)
	log := files[name]
	end := len(bytes.TrimRight(log, "\x00"))
	if cut, n, err := reopened(t, files); cut != "" || n != commits || err != nil {
		t.Fatalf("after a kill: %q, %d instances, %v", cut, n, err)
	}
	r := rand.New(rand.NewPCG(3, 3))
	var cuts []int
	for range 60 {
		cuts = append(cuts, 200+r.IntN(end-200)) // behind the header and some of the first record
	}
	for at := 64; at < end; {
		if at > 64 { // where a record ends, and within the head of the next
			cuts = append(cuts, at, at+1, at+19, at+25)
		}
		at += 20 + int(binary.BigEndian.Uint32(log[at:]))
	}
	lost := 0
	for _, at := range cuts {
		files[name] = log[:at]
		cut, n, err := reopened(t, files)
		if err != nil || n == commits {
			t.Fatalf("cut at %d of %d: %d instances, %v", at, end, n, err)
		}
		if cut == "" {
			lost++
			t.Logf("cut at %d of %d: %d of %d instances, and nothing is said", at, end, n, commits)
		} else if !strings.Contains(cut, "-log-0 ends in the middle of what was written") || !strings.Contains(cut, "restore a newer backup") {
			t.Errorf("it says %s", cut)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d were not said", lost, len(cuts))
	}
	// A record that was torn, as by a power cut, lies in room that was made for it.
	for _, torn := range []int{1, 30, 100} {
		data := bytes.Clone(log)
		clear(data[end-torn:])
		files[name] = data
		if cut, n, err := reopened(t, files); cut != "" || n != commits-1 || err != nil {
			t.Errorf("%d bytes torn: %q, %d instances, %v", torn, cut, n, err)
		}
	}
}
