//go:build !race

package systemtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"edda/store"
)

// The sizes of the restores under load: a short one for every run of the tests, and
// where EDDA_CRASH_KILLS is set as many restores as that has dozens of kills.
const (
	relivedRounds   = 3
	killsPerRestore = 12
	ordersPerLife   = 48
	// backupsPerLife is how many backups are taken of a process while it works.
	backupsPerLife = 2
	// backupWithin bounds how long it works before each, and before its end.
	backupWithin = 400 * time.Millisecond
	// knownFor is how long the streams know an id: shorter than what a restore takes
	// back, as it is with backups of a day.
	knownFor = 100 * time.Millisecond
	// deathsPerPast bounds how often it dies while its store catches up.
	deathsPerPast = 2
	// pastWithin is within which time it dies then: it has begun to read by half of it.
	pastWithin = 800 * time.Millisecond
)

// pastPoints are passed by whoever applies what lies in the streams.
var pastPoints = []string{"engineFetched", "engineEvaluated", "engineSubmitted", "storeFilled", "storeCommitted", "engineCommitted"}

// TestRestoresUnderLoad takes backups while orders of every lot flow, stops or kills
// the process, restores an older one, and kills it again while that catches up. The
// streams hold what the store has forgotten: so nothing may wait, nothing may be called
// under a second key, and the books are those of a run that nobody disturbed.
func TestRestoresUnderLoad(t *testing.T) {
	for _, ledger := range []string{"local", "shared"} {
		t.Run(ledger, func(t *testing.T) {
			beside(t)
			begin := time.Now()
			r := newRelived(t, ledger)
			r.start()
			for range r.rounds {
				r.live()
				r.end()
				r.restore()
				for range 1 + r.rnd.IntN(deathsPerPast) {
					r.dieInThePast()
				}
				r.launch(failpointsOf()...)
				r.ready()
			}
			r.load.finish()
			r.settleAndJudge(r.load)
			(&copier{torture: r.torture, into: r.data}).sound()
			r.judgeSent()
			r.report(r.deaths, begin)
		})
	}
}

// relived is a torture whose store is put back to what it was, again and again.
type relived struct {
	*torture
	rnd     *rand.Rand
	load    *producer
	rounds  int
	deaths  int
	plain   int      // starts, after a kill, of a store that had caught up
	backups []string // of all lives, oldest first
}

func newRelived(t *testing.T, ledger string) *relived {
	r := &relived{torture: newTorture(t, crashSeed(t), &tortured, tortureManifest), rounds: relivedRounds}
	if longRound() {
		r.rounds = max(relivedRounds, envInt(t, "EDDA_CRASH_KILLS", 0)/killsPerRestore)
	}
	r.relived = true
	r.rnd = rand.New(rand.NewPCG(r.seed, 4))
	r.config = write(t, r.dir, "edda.yaml", fmt.Sprintf("effects: {allow: [127.0.0.1], ack_wait: 1s, ledger: %s}\nstreams: {duplicates: %s}\nlog: {level: warn}\n", ledger, knownFor)+shopSource)
	r.env = []string{way(true)} // what is handed over has another time in the streams
	r.load = produce(t, r.nats.url(), rand.New(rand.NewPCG(r.seed, 2)), 4*time.Millisecond)
	return r
}

// live lets orders flow, and takes backups at any moment.
func (r *relived) live() {
	r.t.Helper()
	r.load.released <- ordersPerLife
	for range backupsPerLife {
		r.works()
		r.backUp()
	}
	r.works()
}

// works lets some time pass in which the process works.
func (r *relived) works() {
	r.t.Helper()
	r.await(time.Duration(r.rnd.Int64N(int64(backupWithin))), func() bool { return false })
}

func (r *relived) backUp() {
	r.t.Helper()
	file := filepath.Join(r.dir, fmt.Sprintf("%d.backup", len(r.backups)))
	r.does("backup", file, "--addr", r.addr, "--why", "torture")
	r.backups = append(r.backups, file)
}

// does runs a command of an operator to its end.
func (r *relived) does(args ...string) string {
	r.t.Helper()
	return (&copier{torture: r.torture}).done(args...)
}

// end stops the process in order, or does not.
func (r *relived) end() {
	r.t.Helper()
	if r.rnd.IntN(2) == 0 {
		r.dieAnywhere(false)
		r.deaths++
		return
	}
	if code := r.child.terminate(); code != 0 {
		r.t.Errorf("a stop in order: exit code %d: %s", code, r.child.err)
	}
}

// restore puts back one of the backups, of this life or of one before.
func (r *relived) restore() {
	r.t.Helper()
	c := &copier{torture: r.torture, into: r.data}
	c.nameFree()
	newest := len(r.backups) - 1
	at := newest - r.rnd.IntN(min(newest, 2*backupsPerLife)+1)
	r.does("restore", r.backups[at], "--force", "--data", r.data)
	clear(r.completed) // it has forgotten what it knew
}

// dieInThePast begins to catch up, and ends at a point of it, anywhere, or in order.
func (r *relived) dieInThePast() {
	r.t.Helper()
	defer r.notePlain()
	r.deaths++
	switch r.rnd.IntN(4) {
	case 0, 1:
		r.dieAt(kill{point: pastPoints[r.rnd.IntN(len(pastPoints))], after: r.rnd.IntN(2), apart: true})
		return
	case 2:
		r.launch(failpointsOf()...)
		r.await(time.Duration(r.rnd.Int64N(int64(pastWithin))), func() bool { return false })
		r.dieAnywhere(longRound() && r.rnd.IntN(2) == 0)
		return
	}
	r.launch(failpointsOf(`engineFetched=sleep(20)`)...)
	untilIn(r.t, 2*soon, "the process reads", func() bool {
		text, _ := ask("http://" + r.points + "/engineFetched/count")
		n, _ := strconv.Atoi(text) // it does not answer yet
		return n > 0
	})
	r.await(pastWithin, func() bool { return false })
	if code := r.child.terminate(); code != 0 {
		r.t.Errorf("a stop in order while it caught up: exit code %d: %s", code, r.child.err)
	}
}

// notePlain looks at a dead process whether its store had caught up.
func (r *relived) notePlain() {
	r.t.Helper()
	_, err := os.Stat(filepath.Join(r.data, "store", store.FileName+".restored"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.plain++
	case err != nil:
		r.t.Error(err)
	}
}

// judgeSent: no command was sent when its answer lay in the stream. A store that has
// caught up is as any other, and may do so when it is killed.
func (r *relived) judgeSent() {
	r.t.Helper()
	sent := 0
	for id, list := range r.ledger.published {
		answer := r.ledger.published[id+".result"]
		for _, p := range list {
			if len(answer) > 0 && p.at.After(answer[0].at) {
				sent++
			}
		}
	}
	r.t.Logf("%d commands were sent although they were answered", sent)
	if sent > r.plain*crashInFlight {
		r.t.Errorf("%d commands were sent although they were answered, and %d starts may do that", sent, r.plain)
	}
}

// judgeKeys: whatever was called, on all the timelines together, was called under one
// idempotency key for what it does.
func (b *books) judgeKeys(t testing.TB) {
	t.Helper()
	keys := map[string][]string{}
	for _, c := range b.shop.all() {
		what := c.Effect + " " + c.Body
		if !slices.Contains(keys[what], c.Key) {
			keys[what] = append(keys[what], c.Key)
		}
	}
	for what, list := range keys {
		if len(list) > 1 {
			b.wrong(t, "keys", "%s was called under %s", what, strings.Join(list, " and "))
		}
	}
}

// answered tells whether a command needs no claim: the store that had it was put back
// to an earlier one, which took the result from the stream.
func (b *books) answered(id string) bool {
	return b.relived && len(b.published[id+".result"]) > 0
}
