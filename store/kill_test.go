//go:build !quick

package store

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"edda"
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
