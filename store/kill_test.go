//go:build !quick

package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/store/wal"
)

// victim names the folder of the child that is killed.
const victim = "EDDA_STORE_VICTIM"

// TestCommitsSurviveAKill: a child process is killed during its commits, several times on the same
// file. Every acknowledged commit is there, and none in part.
func TestCommitsSurviveAKill(t *testing.T) {
	if dir := os.Getenv(victim); dir != "" {
		commitForever(t, dir)
		return
	}
	dir := t.TempDir()
	for _, after := range []int{1, 7, 20} {
		told := killAfter(t, dir, after)
		db := open(t, dir, Options{})
		db.check(t)
		checkIndex(t, db.DB)
		a, b := db.cell(t, key("a")).Instance, db.cell(t, key("b")).Instance
		if a == nil || b == nil || a.Revision != b.Revision {
			t.Fatalf("half a commit: %+v, %+v", a, b)
		}
		if a.Revision < told {
			t.Errorf("told of %d, kept %d", told, a.Revision)
		}
		waiting, _ := db.OutboxSize()
		same(t, "outbox", waiting, int(2*a.Revision))
		db.stop()
	}
}

func killAfter(t *testing.T, dir string, commits int) uint64 {
	return killChildAfter(t, "TestCommitsSurviveAKill", victim+"="+dir, commits)
}

// killChildAfter runs a test as a child until it has told of that many commits,
// and returns the last one it told of.
func killChildAfter(t *testing.T, test, env string, commits int) (last uint64) {
	child := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	child.Env = append(os.Environ(), env)
	out := must(child.StdoutPipe())
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for heard := 1; lines.Scan(); heard++ {
		n, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			t.Fatalf("the child says %q", lines.Text())
		}
		last = n
		if heard == commits {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = child.Wait() // it was killed
	return last
}

// commitForever tells on standard output of every revision that is committed.
func commitForever(t *testing.T, dir string) {
	db := open(t, dir, Options{})
	revision := uint64(0)
	if in := db.cell(t, key("a")).Instance; in != nil {
		revision = in.Revision
	}
	for {
		revision++
		a := working("a", revision, fmt.Sprint("a", revision))
		b := working("b", revision, fmt.Sprint("b", revision))
		if err := db.Commit(context.Background(), Change{Transitions: []edda.Transition{a, b}}); err != nil {
			t.Fatal(err)
		}
		fmt.Println(revision)
	}
}

// upkeeper names the folder of the child that is killed while it compacts.
const upkeeper = "EDDA_STORE_UPKEEPER"

// TestCommitsSurviveAKillDuringACompaction: a child process that commits, removes and compacts is
// killed several times on the same file. Whichever of the two files is in place has every
// acknowledged commit.
func TestCommitsSurviveAKillDuringACompaction(t *testing.T) {
	if dir := os.Getenv(upkeeper); dir != "" {
		compactForever(t, dir)
		return
	}
	dir := t.TempDir()
	for _, after := range []int{3, 30, 77, 150} {
		told := killChildAfter(t, "TestCommitsSurviveAKillDuringACompaction", upkeeper+"="+dir, after)
		db := open(t, dir, Options{})
		db.check(t)
		checkIndex(t, db.DB)
		if a := db.cell(t, key("a")).Instance; a == nil || a.Revision < told {
			t.Errorf("told of %d, kept %+v", told, a)
		}
		if _, err := os.Stat(filepath.Join(dir, compacting)); err == nil {
			t.Error("half a compaction is left")
		}
		db.stop()
	}
}

// compactForever tells of every revision that is committed.
func compactForever(t *testing.T, dir string) {
	db := open(t, dir, Options{})
	go func() {
		for {
			if _, err := db.Compact(context.Background(), nil); err != nil {
				t.Error(err)
			}
		}
	}()
	revision := uint64(0)
	if in := db.cell(t, key("a")).Instance; in != nil {
		revision = in.Revision
	}
	for {
		revision++
		old := finished(key(fmt.Sprint("old", revision)), 1, edda.StatusDone)
		db.commit(t, Change{Transitions: []edda.Transition{step(key("a"), revision), old}})
		fmt.Println(revision)
		if revision%10 == 0 {
			db.sweep(t, KindInstances, before(noon.Add(time.Hour)))
		}
	}
}

// unshipped names the folder of the owner that is killed, and of the commit during which it is.
const unshipped = "EDDA_STORE_UNSHIPPED"

// TestAKilledOwnerIsRewound: a child process is killed when the WAL has a commit and the log has not
// answered, several times on the same file. The file loses that commit alone.
func TestAKilledOwnerIsRewound(t *testing.T) {
	if victim := os.Getenv(unshipped); victim != "" {
		dir, during, _ := strings.Cut(victim, "|")
		commitUnshipped(t, dir, must(strconv.Atoi(during)))
		return
	}
	dir := t.TempDir()
	for round, during := range []int{1, 2, 40, 90} {
		told := killChildAfter(t, "TestAKilledOwnerIsRewound", fmt.Sprintf("%s=%s|%d", unshipped, dir, during), 1)
		before := wal.Point{Transaction: told >> 32, Sum: uint32(told)}
		r := openReplica(t, dir, Options{})
		same(t, "the last transaction", r.LSN(), before.Transaction+1)
		if err := r.Rewind(before); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		same(t, "point", r.Point(), before)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		db := open(t, dir, Options{})
		db.check(t)
		checkIndex(t, db.DB)
		revision := uint64(0)
		if in := db.cell(t, key("a")).Instance; in != nil {
			revision = in.Revision
		}
		same(t, "revision", revision, before.Transaction)
		db.stop()
	}
}

// commitUnshipped commits, and tells of the point before a commit once its record is synced.
func commitUnshipped(t *testing.T, dir string, during int) {
	var db *opened
	commits := 0
	db = open(t, dir, Options{flushAt: 8 << 10, Ship: func(uint64, []byte) func() error {
		commits++
		return func() error {
			if commits == during {
				at := db.Point()
				fmt.Println(at.Transaction<<32 | uint64(at.Sum))
				for range time.Tick(time.Minute) { // until it is killed
				}
			}
			return nil
		}
	}})
	revision := uint64(0)
	if in := db.cell(t, key("a")).Instance; in != nil {
		revision = in.Revision
	}
	for {
		revision++
		if err := db.Commit(context.Background(), Change{Transitions: []edda.Transition{working("a", revision, fmt.Sprint("a", revision))}}); err != nil {
			t.Fatal(err)
		}
	}
}

// restorer names the backup, the folder and the store of the child that is killed while it restores.
const restorer = "EDDA_STORE_RESTORER"

// TestAKilledRestoreLeavesNoReplica: a child process is killed while it restores replicas. Each folder has no
// replica, or a whole one.
func TestAKilledRestoreLeavesNoReplica(t *testing.T) {
	if of := os.Getenv(restorer); of != "" {
		part := strings.Split(of, "|")
		for n := 0; ; n++ {
			fmt.Println(n)
			must(RestoreReplica(context.Background(), part[0], filepath.Join(part[1], fmt.Sprint(n)), part[2], ReplaceNone))
		}
	}
	db := open(t, t.TempDir(), Options{noSync: true})
	bulky(t, db, 512)
	at, want, err := db.Hash(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	file, whole := save(t, backup(t, db)), 0
	for _, after := range []int{1, 2, 3, 4} {
		dir := t.TempDir()
		killChildAfter(t, "TestAKilledRestoreLeavesNoReplica", strings.Join([]string{restorer + "=" + file, dir, db.ID()}, "|"), after)
		for n := range after {
			to := filepath.Join(dir, fmt.Sprint(n))
			r, err := OpenReplica(to, Options{initialMap: 1 << 20})
			if err == nil {
				whole++
				is, sum, err := r.Hash(context.Background())
				if err = errors.Join(err, r.Close()); err != nil || is != at || sum != want {
					t.Errorf("half a replica: at %+v, want %+v, %v", is, at, err)
				}
				continue
			}
			if !errors.Is(err, edda.Permanent) {
				t.Error(err)
			}
			must(RestoreReplica(context.Background(), file, to, db.ID(), ReplaceNone)) // the files that the killed restore left do not hinder it
			r = openReplica(t, to, Options{})
			same(t, "point", r.Point(), at)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if whole == 0 {
		t.Error("no replica is whole")
	}
}
