package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// tick is the kernel's unit of CPU time in /proc: USER_HZ is 100 everywhere.
const tick = 10 * time.Millisecond

// usage is what a process has used since it began.
type usage struct {
	cpu     time.Duration
	written int64 // bytes that were handed to the kernel, for files and connections
}

// usageOf reads a process's use from /proc; where there is none it is zero. What the
// kernel calls write_bytes is not read: it counts all of a folio of its cache for one page
// of it, and there are folios of two megabytes.
func usageOf(pid int) usage {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return usage{cpu: cpuOf(string(stat)), written: field(fmt.Sprintf("/proc/%d/io", pid), "wchar")}
}

// cpuOf is the user's and the system's time in the text of /proc/PID/stat. The
// name before them may hold anything, and ends with the last parenthesis.
func cpuOf(stat string) time.Duration {
	rest := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(rest) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(rest[11], 10, 64)
	system, _ := strconv.ParseInt(rest[12], 10, 64)
	return time.Duration(user+system) * tick
}

// machineTime is the CPU time that the whole machine has been busy.
func machineTime() time.Duration {
	stat, _ := os.ReadFile("/proc/stat")
	return busyOf(string(stat))
}

// leastIdle is how many cores must be idle so that the machine does not bound what is measured.
const leastIdle = 0.3

// idleCores is the mean number of idle cores since a time. busy is what machineTime was then.
func idleCores(since time.Time, busy time.Duration) float64 {
	return float64(runtime.NumCPU()) - (machineTime()-busy).Seconds()/time.Since(since).Seconds()
}

// busyOf adds the first line of /proc/stat without its fourth and fifth number,
// in which nothing ran, and without guests, which are counted as users, too.
func busyOf(stat string) (sum time.Duration) {
	first, _, _ := strings.Cut(stat, "\n")
	for i, word := range strings.Fields(first) {
		if n, err := strconv.ParseInt(word, 10, 64); err == nil && i <= 8 && i != 4 && i != 5 {
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// field is the number of a line "name: number …" in a file of /proc.
func field(file, name string) int64 {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			words := strings.Fields(rest)
			if len(words) == 0 {
				return 0
			}
			n, _ := strconv.ParseInt(words[0], 10, 64)
			return n
		}
	}
	return 0
}

// anonymous is a process's memory that is not of files, in bytes.
func anonymous(pid int) int64 { return field(fmt.Sprintf("/proc/%d/status", pid), "RssAnon") << 10 }

// peak looks at a process's anonymous memory until it is stopped.
type peak struct {
	most atomic.Int64
	stop context.CancelFunc
	done chan struct{}
}

func watchMemory(ctx context.Context, pid int) *peak {
	ctx, cancel := context.WithCancel(ctx)
	p := &peak{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		for {
			p.most.Store(max(p.most.Load(), anonymous(pid)))
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return p
}

// end stops looking, and tells the most that was seen.
func (p *peak) end() int64 {
	p.stop()
	<-p.done
	return p.most.Load()
}
