//go:build !race

package systemtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"edda/internal/testkit"
	"edda/replay"
	"edda/server"
	"edda/store"
)

// actRounds is how often every act is done while events flow.
const actRounds = 3

// copyPoints are in the commands that copy a store into a backup and put it back.
var copyPoints = []string{"backupChecked", "restoreCopied", "restoreExamined", "restoreRenamed", "restoreKept"}

// atRest does what an operator would at the end of the day, with the process that
// worked until now: nothing of it may change what any order came to.
func (w *torture) atRest() {
	w.t.Helper()
	o := w.operators
	untilIn(w.t, tortureWithin, "the replays that were begun go on to their end", func() bool {
		running, err := o.running(w.t.Context())
		return err == nil && !running
	})
	list, err := o.replays(w.t.Context(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range list {
		if r.State != replay.StateDone {
			w.t.Errorf("the replay %s, begun at %v, ended %s: %s", r.ID, r.Begun, r.State, r.Error)
		}
	}
	w.replayed(server.ReplayOrder{Saga: replayed, Newest: true})
	for _, name := range []string{"order", "nudge", "beat", "approval", "basket", "parcel", "packing", replayed} {
		r := w.replayed(server.ReplayOrder{Saga: name, DryRun: true})
		if p := r.Progress; p.Same == 0 || p.Changed+p.Unbuilt+p.NewWork+p.Extra > 0 {
			w.t.Errorf("the history of saga %s does not give what is stored: %s", name, encoded(p))
		}
	}
	if err := o.compact(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	if o.done["replay"] > 0 {
		w.t.Logf("acts that were answered: %s; refused: %s, at first %s", encoded(o.done), encoded(o.refused), o.first)
	}
}

// acted lets every act be done to its end while events flow, and the process lives
// on: what a killed one lost comes again from the streams, what this one loses does not.
func (w *torture) acted(load *producer) {
	w.t.Helper()
	var lingers []string
	for i := range acts {
		lingers = append(lingers, acts[i].env("")...)
	}
	w.launch(failpointsOf(lingers...)...)
	w.ready()
	for range actRounds {
		load.released <- ordersPerKill
		for i := range acts {
			_ = acts[i].do(w.operators, w.t.Context()) // there may be nothing to act on yet
		}
	}
	if n := w.operators.done["compact"]; n < actRounds {
		w.t.Errorf("%d compactions were done: the torture tests less than it says", n)
	}
}

// replayed has a saga replayed to the end.
func (w *torture) replayed(order server.ReplayOrder) (r replay.Report) {
	w.t.Helper()
	r, err := w.operators.begin(w.t.Context(), order)
	if err != nil {
		w.t.Fatal(err)
	}
	untilIn(w.t, tortureWithin, "a replay of saga "+order.Saga+" ends", func() bool {
		list, err := w.operators.replays(w.t.Context(), r.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		r = list[0]
		return r.State != replay.StateRunning
	})
	if r.State != replay.StateDone {
		w.t.Errorf("the replay of saga %s ended %s: %s", order.Saga, r.State, r.Error)
	}
	return r
}

// copier takes a store to another folder and back, while its commands are killed.
type copier struct {
	*torture
	file string // the backup
	into string // the data folder of the restored store
}

// backedUp takes a backup of the process that runs; the command is killed once
// before the file has its name.
func (w *torture) backedUp() *copier {
	w.t.Helper()
	c := &copier{torture: w, file: filepath.Join(w.dir, "kept.backup"), into: filepath.Join(w.dir, "restored")}
	args := []string{"backup", c.file, "--addr", w.addr, "--why", "torture"}
	c.killedAt("backupChecked", args...)
	if _, err := os.Stat(c.file); err == nil {
		w.t.Error("a backup that was killed is there")
	}
	c.done(args...)
	return c
}

// killedAt runs a command until it comes to a point, and kills it there.
func (c *copier) killedAt(point string, args ...string) {
	c.t.Helper()
	at := freeAddr(c.t)
	child := launchOf(c.t, c.build.get(c.t), []string{"GOFAIL_HTTP=" + at, "GOFAIL_FAILPOINTS=" + point + `=sleep("1h")`}, args...)
	until(c.t, fmt.Sprintf("edda %s comes to %s", args[0], point), func() bool {
		if testkit.Closed(child.Ended()) {
			c.t.Fatalf("edda %s ended before %s: %s%s", args[0], point, child.out, child.err)
		}
		text, _ := ask("http://" + at + "/" + point + "/count")
		n, _ := strconv.Atoi(text) // it does not answer yet
		return n > 0
	})
	child.kill()
	c.killed[point]++
}

func (c *copier) done(args ...string) string {
	c.t.Helper()
	child := launchOf(c.t, c.build.get(c.t), nil, args...)
	if code := child.code(); code != 0 {
		c.t.Fatalf("edda %s: exit code %d: %s%s", strings.Join(args, " "), code, child.out, child.err)
	}
	return child.out.String()
}

// restored puts the backup into a fresh folder, is killed at every point of that,
// and does it again; then once more over what is there. At every moment there is
// no store or a whole one.
func (c *copier) restored() {
	c.t.Helper()
	restore := []string{"restore", c.file, "--data", c.into}
	for _, point := range []string{"restoreCopied", "restoreExamined"} {
		c.killedAt(point, restore...)
		if _, err := os.Stat(filepath.Join(c.into, "store", store.FileName)); err == nil {
			c.t.Errorf("killed at %s it left a store", point)
		}
	}
	c.killedAt("restoreRenamed", restore...)
	c.sound()
	over := append(slices.Clone(restore), "--force")
	for _, point := range []string{"restoreCopied", "restoreExamined", "restoreKept", "restoreRenamed"} {
		c.killedAt(point, over...)
		c.sound()
		c.nameFree()
	}
	c.done(over...)
	c.sound()
	c.nothingLeft(filepath.Join(c.into, "store"))
}

// nameFree waits until what is moved aside next has a name of its own: it is named
// by the second.
func (c *copier) nameFree() {
	c.t.Helper()
	until(c.t, "a second goes by", func() bool {
		aside := store.FileName + ".before-" + time.Now().UTC().Format("20060102T150405Z")
		_, err := os.Stat(filepath.Join(c.into, "store", aside))
		return errors.Is(err, os.ErrNotExist)
	})
}

// sound has the restored store examined by the doctor.
func (c *copier) sound() {
	c.t.Helper()
	if out := c.done("doctor", "--data", c.into); !strings.Contains(out, ": 0 findings in ") {
		c.t.Errorf("the doctor says of the restored store: %s", out)
	}
}

// nothingLeft: a file that was being made is not left beside the store that is used.
func (c *copier) nothingLeft(dir string) {
	c.t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range list {
		if name := e.Name(); strings.HasSuffix(name, ".compacting") || strings.HasSuffix(name, ".restoring") {
			c.t.Errorf("%s is left in %s", name, dir)
		}
	}
}

// sameBooks: what was restored says of every key what the store says that it is a
// copy of. Nothing was done after the backup but what tells of it.
func (c *copier) sameBooks(was *books) {
	c.t.Helper()
	b := readBooks(c.t, filepath.Join(c.into, "store"), c.nats.url())
	if len(b.keys) != len(was.keys) || len(b.letters) != len(was.letters) || len(b.claims) != len(was.claims) {
		c.t.Errorf("restored: %d keys, %d letters, %d claims of %d, %d, %d", len(b.keys), len(b.letters), len(b.claims), len(was.keys), len(was.letters), len(was.claims))
	}
	for _, k := range was.keys {
		if !bytes.Equal(encoded(b.instances[k]), encoded(was.instances[k])) || !bytes.Equal(encoded(b.records[k]), encoded(was.records[k])) {
			was.wrong(c.t, "not as it was backed up", "%s is %s, and was %s", k, encoded(b.instances[k]), encoded(was.instances[k]))
		}
	}
}
