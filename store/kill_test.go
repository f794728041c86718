package store

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"edda"
)

// victim names the folder of the child that is killed.
const victim = "EDDA_STORE_VICTIM"

// TestKilledProcessKeepsWhatItAnswered kills a child in the middle of its
// commits, a few times over the same file: every commit that it has told of is
// there, and none is half there.
func TestKilledProcessKeepsWhatItAnswered(t *testing.T) {
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

// killAfter runs the child until it has told of that many commits, and returns
// the last one it told of.
func killAfter(t *testing.T, dir string, commits int) (last uint64) {
	child := exec.Command(os.Args[0], "-test.run=^TestKilledProcessKeepsWhatItAnswered$")
	child.Env = append(os.Environ(), victim+"="+dir)
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
