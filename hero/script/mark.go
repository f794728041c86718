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

// mark identifies the processes of one run. It is a value of the resource limit
// RLIMIT_RTTIME, which has no effect on a process without real-time scheduling. Every
// process inherits it from its parent, through exec, setsid, a second fork, and an emptied
// environment. As a limit, in microseconds, a mark is at least a few hundred years.
type mark uint64

const (
	leastMark = 1 << 53
	mostMark  = 1 << 62
)

func newMark() mark { return leastMark + mark(rand.Uint64N(mostMark-leastMark)) }

// put marks a process. Its later children inherit the mark.
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
		return m.reads(pid) // another user's process, in a container that took the right from root
	}
	return err == nil && limit.Max == uint64(m)
}

// reads looks for the mark in /proc, which needs no right and is slow.
func (m mark) reads(pid int) bool {
	limits, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	return err == nil && bytes.Contains(limits, []byte(" "+strconv.FormatUint(uint64(m), 10)+" "))
}

// processes lists the live processes with the mark. It reaps children of this process that
// have ended, except for the leader, which run.run reaps.
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

// pids lists all processes, the newest first, because those may fork and end before they
// are looked at.
func pids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // the names before an error are of use
	out := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	slices.SortFunc(out, func(a, b int) int { return b - a })
	return out
}

// signal sends a signal to a process that has the mark. It uses a descriptor, because the
// process id may belong to another process a moment later.
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

// signalAll sends a signal to every marked process, and returns their number.
func (m mark) signalAll(leader int, sig unix.Signal) int {
	live := m.processes(leader)
	for _, p := range live {
		m.signal(p.pid, sig)
		if sig == unix.SIGKILL && p.group > 1 && p.group != unix.Getpgrp() {
			// The group is the run's as long as p lives. One call reaches all of it, even a
			// process that forks and ends all the time.
			_ = unix.Kill(-p.group, sig)
		}
	}
	return len(live)
}

const (
	killWithin = 10 * time.Second     // a process in disk I/O dies only after it
	killPause  = 2 * time.Millisecond // between two rounds of killing
	// emptyLooks is the number of consecutive looks without a process that end the search
	// while other programs start processes all the time. Otherwise one look is enough.
	emptyLooks = 10
)

var errUnkillable = errors.New("processes of the run do not end")

// kill ends every marked process. The next round finds the children of a process that
// forked during this one.
func (m mark) kill(leader int) error {
	for until := time.Now().Add(killWithin); time.Now().Before(until); time.Sleep(killPause) {
		for empty := 1; ; empty++ {
			before := newest()
			if m.signalAll(leader, unix.SIGKILL) > 0 {
				break
			}
			if empty == emptyLooks || before != "" && before == newest() {
				return nil // no process was created meanwhile, so none was missed
			}
		}
	}
	return errUnkillable
}

// newest returns the id of the process or thread that this machine created last.
func newest() string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	f := bytes.Fields(load)
	return string(f[len(f)-1])
}

// proc holds the kernel's counts of a process.
type proc struct {
	pid, parent int
	group       int
	dead        bool // ended, not yet waited for
	cpu         time.Duration
	resident    int64 // bytes of its own
	mapped      int64 // bytes of files in memory that it has touched
}

const clockTick = 10 * time.Millisecond // /proc's unit of processor time, on every platform of Go

// Positions in /proc/<pid>/stat after the name in brackets.
const (
	statState   = 0
	statParent  = 1
	statGroup   = 2
	statUser    = 11 // then system, and both of the children that it waited for
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
	p.mapped, _ = p.kibibytes("status", "RssShmem:") // 0 for a process that has ended
	return p, true
}

// kibibytes reads the bytes of a name in a file of /proc that counts in KiB.
func (p proc) kibibytes(file, name string) (bytes int64, err error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/" + file)
	return valueOf(raw, name) << 10, err
}

// valueOf reads the number of a name from the kernel's lines of names and numbers; 0 where
// the name is missing.
func valueOf(raw []byte, name string) int64 {
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

// The counts of proportional: all memory, and memory that is in no file.
const (
	wholePss = "Pss:"
	ownPss   = "Pss_Anon:"
)

// proportional returns the memory of a process, with its share of each page that several
// processes share. It is exact and slow.
func (p proc) proportional(which string) int64 {
	memory, err := p.kibibytes("smaps_rollup", which)
	if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrNotExist) { // not a process that has ended
		return p.resident + p.mapped
	}
	return memory
}
