package script

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mark tells the processes of one run from all others. It is a value of the
// resource limit RLIMIT_RTTIME, which means nothing to a process that is not
// scheduled in real time, and which every process inherits from its parent:
// through exec, setsid, a second fork, and an emptied environment. A mark is at
// least a few hundred years in its unit, microseconds.
type mark uint64

const (
	leastMark = 1 << 53
	mostMark  = 1 << 62
)

// newMark is one that no other run has.
func newMark() mark { return leastMark + mark(rand.Uint64N(mostMark-leastMark)) }

// put marks a process. What it forks afterwards is marked too.
func (m mark) put(pid int) error {
	limit := unix.Rlimit{Cur: uint64(m), Max: uint64(m)}
	if err := unix.Prlimit(pid, unix.RLIMIT_RTTIME, &limit, nil); err != nil {
		return fmt.Errorf("mark process: %w", err)
	}
	return nil
}

func (m mark) on(pid int) bool {
	var limit unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &limit)
	if errors.Is(err, unix.EPERM) && os.Geteuid() == 0 {
		return m.reads(pid) // another user's, in a container that took the right from root
	}
	return err == nil && limit.Max == uint64(m)
}

// reads looks for the mark where everybody may, slowly.
func (m mark) reads(pid int) bool {
	limits, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	return err == nil && bytes.Contains(limits, []byte(" "+strconv.FormatUint(uint64(m), 10)+" "))
}

// processes are the marked ones that live. Of those that have ended and that are
// our own children, only we can make the kernel forget them: it does so, except
// for the leader, which belongs to its parent.
func (m mark) processes(leader int) []proc {
	var live []proc
	for _, pid := range pids() {
		if !m.on(pid) {
			continue
		}
		p, ok := readProc(pid)
		switch {
		case ok && !p.dead:
			live = append(live, p)
		case ok && pid != leader && p.parent == os.Getpid():
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
	return live
}

// pids are all processes that there are, the newest first: they are the ones that
// may have gone on as another when they are looked at.
func pids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what it read before an error is of use too
	out := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	slices.SortFunc(out, func(a, b int) int { return b - a })
	return out
}

// signal sends one to a process if it still is the marked one: a process id may
// belong to another process a moment later; the target of a descriptor does not change.
func (m mark) signal(pid int, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if m.on(pid) {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// signalAll sends a signal to every marked process, and tells how many there were.
func (m mark) signalAll(leader int, sig unix.Signal) int {
	live := m.processes(leader)
	for _, p := range live {
		m.signal(p.pid, sig)
		if sig == unix.SIGKILL && p.group > 1 && p.group != unix.Getpgrp() {
			// Its group is the run's, too, whose number is taken while it lives; in one
			// stroke, which a process that forks and ends all the time cannot dodge.
			_ = unix.Kill(-p.group, sig)
		}
	}
	return len(live)
}

const (
	killWithin = 10 * time.Second     // a process in the middle of disk I/O dies only after it
	killPause  = 2 * time.Millisecond // between two rounds of killing
	// emptyLooks is how many looks in a row must find nothing where other programs
	// start processes all the time; else one is enough.
	emptyLooks = 10
)

var errUnkillable = errors.New("processes of the run do not end")

// kill ends every marked process. One that forks while it is looked for is found
// in the next round: what is killed forks no more.
func (m mark) kill(leader int) error {
	for until := time.Now().Add(killWithin); time.Now().Before(until); time.Sleep(killPause) {
		for empty := 1; ; empty++ {
			before := newest()
			if m.signalAll(leader, unix.SIGKILL) > 0 {
				break
			}
			if empty == emptyLooks || before != "" && before == newest() {
				return nil // nothing was born meanwhile that could have been missed
			}
		}
	}
	return errUnkillable
}

// newest is the number of the process or thread that was made last on this machine.
func newest() string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	f := bytes.Fields(load)
	return string(f[len(f)-1])
}

// proc is what the kernel counts of a process.
type proc struct {
	pid, parent int
	group       int
	dead        bool // ended, not yet waited for
	cpu         time.Duration
	resident    int64 // bytes of its own
	mapped      int64 // bytes that it sees of files in memory
}

const clockTick = 10 * time.Millisecond // what /proc counts processor time in, on every platform of Go

// Positions in /proc/<pid>/stat after the name in brackets.
const (
	statState   = 0
	statParent  = 1
	statGroup   = 2
	statUser    = 11 // and system, and both of the children that it waited for
	statThreads = 17
)

func readProc(pid int) (proc, bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return proc{}, false
	}
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) <= statThreads {
		return proc{}, false
	}
	p := proc{pid: pid, parent: int(number(f[statParent])), group: int(number(f[statGroup]))}
	// The first thread of a process may end before the others.
	p.dead = (f[statState][0] == 'Z' || f[statState][0] == 'X') && number(f[statThreads]) <= 1
	for i := range 4 {
		p.cpu += time.Duration(number(f[statUser+i])) * clockTick
	}
	if statm, err := os.ReadFile(dir + "/statm"); err == nil {
		if f := bytes.Fields(statm); len(f) > 2 {
			p.resident = (number(f[1]) - number(f[2])) * int64(os.Getpagesize())
		}
	}
	p.mapped = p.kibibytes("status", "RssShmem:") << 10
	return p, true
}

// kibibytes is the value of a name in a file of /proc that has a line for each.
func (p proc) kibibytes(file, name string) int64 {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/" + file)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == name {
			return number(f[1])
		}
	}
	return 0
}

func number(b []byte) int64 {
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return n
}

// What proportional is asked for: all, and what is in no file.
const (
	wholePss = "Pss:"
	ownPss   = "Pss_Anon:"
)

// proportional is the memory of a process in which a page that several share
// counts once among them. It is slow to ask for, and exact.
func (p proc) proportional(which string) int64 {
	rollup, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/smaps_rollup")
	switch {
	case errors.Is(err, syscall.ESRCH), errors.Is(err, os.ErrNotExist):
		return 0 // it has ended since it was seen, and its memory is gone
	case err != nil:
		return p.resident + p.mapped
	}
	for line := range bytes.Lines(rollup) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == which {
			return number(f[1]) << 10
		}
	}
	return 0 // it is ending
}
