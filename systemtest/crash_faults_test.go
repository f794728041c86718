//go:build !race

package systemtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edda/effects/effecttest"
)

// How long the faults last: longer than the ack wait of a second, and in the long
// round longer than the lease of 15 s, too.
const (
	faultFor      = 1500 * time.Millisecond
	frozenFor     = 3 * time.Second
	frozenForLong = 17 * time.Second
)

// fault is something that goes wrong around a process that goes on.
type fault struct {
	name string
	do   func(*tortureUnderFaults)
}

// faults of every run; those of the long one alone follow.
var faults = []fault{
	{"NATS is killed and comes back", (*tortureUnderFaults).natsKilled},
	{"NATS is slow", (*tortureUnderFaults).natsSlow},
	{"the upstream of the effects is down", (*tortureUnderFaults).upstreamDown},
	{"the disk is full and is freed again", (*tortureUnderFaults).diskFull},
	{"the process is frozen for longer than the ack wait", (*tortureUnderFaults).frozen},
	{"another process opens the same store", (*tortureUnderFaults).secondProcess},
}

// tortureUnderFaults is a run whose process is not killed.
type tortureUnderFaults struct {
	*torture
	proxy *effecttest.Faults // between the process and NATS
	load  *producer
	long  bool
}

// TestTorturedByFaults lets the faults come one after another while orders flow;
// in the long round each has a run of its own, too, and the clock is stepped.
func TestTorturedByFaults(t *testing.T) {
	seed, long := crashSeed(t), longRound()
	beside(t)
	t.Run("all", func(t *testing.T) { faultsInARow(t, seed, &tortured, long, faults...) })
	if !long {
		return
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { faultsInARow(t, seed, &tortured, long, f) })
	}
	f := fault{"the clock is stepped back and forth by an hour", (*tortureUnderFaults).clockStepped}
	t.Run(f.name, func(t *testing.T) { faultsInARow(t, seed, &clocked, long, f) })
}

func faultsInARow(t *testing.T, seed uint64, build *crashBuild, long bool, row ...fault) {
	begin := time.Now()
	u := &tortureUnderFaults{torture: newTorture(t, seed, build, tortureManifest), long: long}
	u.proxy = effecttest.NewFaults(t, u.nats.addr)
	u.natsURL = "nats://" + u.proxy.Address()
	if build.clock {
		u.step(0)
		u.env = []string{"CRASH_CLOCK=" + u.clockFile()}
	}
	u.start()
	u.load = produce(t, u.nats.url(), rand.New(rand.NewPCG(seed, 2)), 4*time.Millisecond)
	for _, f := range row {
		u.load.released <- 4 * ordersPerKill // they flow before, during and after it
		u.await(300*time.Millisecond, func() bool { return false })
		from := time.Now()
		f.do(u)
		t.Logf("%s: %v", f.name, time.Since(from).Round(time.Millisecond))
		u.load.released <- ordersPerKill
	}
	u.load.finish()
	u.settleAndJudge(u.load)
	u.report(0, begin)
	if build.clock {
		u.knewOfSteps()
	}
}

// last lets a fault last, and fails where the process ends by it.
func (u *tortureUnderFaults) last(d time.Duration) {
	u.t.Helper()
	u.await(d, func() bool { return false })
}

func (u *tortureUnderFaults) natsKilled() {
	u.nats.kill()
	u.last(faultFor)
	u.nats.start()
	u.healthyAgain()
}

// natsSlow is no fault of anybody's: everything takes longer.
func (u *tortureUnderFaults) natsSlow() {
	u.proxy.SlowAnswers(100 * time.Millisecond)
	u.last(2 * faultFor)
	u.proxy.None()
}

func (u *tortureUnderFaults) upstreamDown() {
	u.shop.close(true)
	u.last(2 * faultFor)
	u.shop.close(false)
}

// diskFull refuses whatever the process writes into files, but for their first
// pages: it must say so, go on living, and go on working once there is room.
func (u *tortureUnderFaults) diskFull() {
	u.limitFiles(2 * uint64(os.Getpagesize()))
	told := u.await(soon, func() bool { return u.health() == http.StatusServiceUnavailable })
	if !told {
		u.t.Error("/health does not tell of a full disk")
	}
	u.last(faultFor)
	u.limitFiles(unix.RLIM_INFINITY)
	u.healthyAgain()
}

func (u *tortureUnderFaults) limitFiles(bytes uint64) {
	u.t.Helper()
	limit := unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(u.child.Cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		u.t.Fatal(err)
	}
}

// health is the status of /health; 0 where nobody answers.
func (u *tortureUnderFaults) health() int {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + u.addr + "/health")
	if err != nil {
		return 0
	}
	_ = resp.Body.Close() // only the status is asked for
	return resp.StatusCode
}

func (u *tortureUnderFaults) healthyAgain() {
	u.t.Helper()
	if !u.await(soon, func() bool { return u.health() == http.StatusOK }) {
		u.t.Errorf("it does not recover: %s", u.child.err)
	}
}

// frozen stops the process as a debugger or a busy host does.
func (u *tortureUnderFaults) frozen() {
	d := frozenFor
	if u.long {
		d = frozenForLong
	}
	u.signal(syscall.SIGSTOP)
	u.last(d)
	u.signal(syscall.SIGCONT)
}

func (u *tortureUnderFaults) signal(s syscall.Signal) {
	u.t.Helper()
	if err := u.child.Cmd.Process.Signal(s); err != nil {
		u.t.Fatal(err)
	}
}

// secondProcess must be refused, on the same store by the file's lock and on
// another one by the lease, and the first one must not suffer.
func (u *tortureUnderFaults) secondProcess() {
	for data, words := range map[string]string{u.data: "another process", filepath.Join(u.dir, "second"): "serves these tenants"} {
		second := launchOf(u.t, u.build.get(u.t), nil, "run", "--config", u.config, "--role", "combined", "--nats-url", u.nats.url(),
			"--addr", freeAddr(u.t), "--data", data, u.manifest)
		if code := second.code(); code != 1 || !strings.Contains(second.err.String(), words) {
			u.t.Errorf("a second process ended with %d and does not say %q: %s", code, words, second.err)
		}
	}
	if u.health() != http.StatusOK {
		u.t.Errorf("the first one suffered: %s", u.child.err)
	}
}

func (u *tortureUnderFaults) clockFile() string { return filepath.Join(u.dir, "clock") }

// step sets by how much the process's wall clock is off.
func (u *tortureUnderFaults) step(seconds int) {
	u.t.Helper()
	write(u.t, u.dir, "clock", fmt.Sprint(seconds))
}

// clockStepped moves the clock forth and back, twice, while orders flow.
func (u *tortureUnderFaults) clockStepped() {
	for _, seconds := range []int{3600, 0, -3600, 3600, 0} {
		u.step(seconds)
		u.last(faultFor)
		u.load.released <- ordersPerKill
	}
}

// knewOfSteps looks that the process saw its clock go forth and back: claims say
// when they were made, and the shop when it was called.
func (u *tortureUnderFaults) knewOfSteps() {
	u.t.Helper()
	forth, back := 0, 0
	for id, c := range u.ledger.claims {
		switch off := c.Claimed.Sub(u.shop.began[id][0]); {
		case off > 30*time.Minute:
			forth++
		case off < -30*time.Minute:
			back++
		}
	}
	u.t.Logf("%d claims were made with the clock an hour ahead, %d with it an hour behind", forth, back)
	if forth == 0 || back == 0 {
		u.t.Error("the clock was not stepped: the test tests nothing")
	}
}
