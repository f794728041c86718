package script

import (
	"cmp"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bounds one run. Zero means the default, which is in brackets; a negative value
// means no limit.
type Limits struct {
	Timeout   time.Duration // of a job without one (10 min)
	Grace     time.Duration // between SIGTERM and SIGKILL (5 s)
	Source    int           // bytes of a script (1 MiB)
	Output    int           // bytes of stdout, and of stderr (1 MiB)
	Memory    int64         // bytes of all processes together (1 GiB)
	CPU       time.Duration // of all processes together (1 h)
	FileSize  int64         // bytes of one written file (256 MiB)
	Disk      int64         // bytes in the temporary folder (1 GiB)
	Processes int           // at once (64)
	OpenFiles int           // of one process (1024)
	// Logs: bytes of a log before rotation (1 MiB), rotated parts per log (1), files per
	// context, the oldest are removed first (1000), and age since the last write (30 days).
	LogSize      int64
	LogRotations int
	LogFiles     int
	LogAge       time.Duration
}

func (l Limits) logs() LogBounds {
	return LogBounds{Size: l.LogSize, Rotations: l.LogRotations, Files: l.LogFiles, Age: l.LogAge}
}

// The defaults of logs, which package dispatcher uses, too.
const (
	DefaultLogRotations = 1
	DefaultLogFiles     = 1000
	DefaultLogAge       = 30 * 24 * time.Hour
)

func (l Limits) filled() Limits {
	return Limits{
		Timeout: cmp.Or(l.Timeout, 10*time.Minute), Grace: cmp.Or(l.Grace, 5*time.Second),
		Source: cmp.Or(l.Source, 1<<20), Output: cmp.Or(l.Output, 1<<20), // the output becomes a field of a hash and part of messages
		Memory: cmp.Or(l.Memory, 1<<30), CPU: cmp.Or(l.CPU, time.Hour), FileSize: cmp.Or(l.FileSize, 256<<20), Disk: cmp.Or(l.Disk, 1<<30),
		Processes: cmp.Or(l.Processes, 64), OpenFiles: cmp.Or(l.OpenFiles, 1024), LogSize: cmp.Or(l.LogSize, 1<<20),
		LogRotations: cmp.Or(l.LogRotations, DefaultLogRotations), LogFiles: cmp.Or(l.LogFiles, DefaultLogFiles), LogAge: cmp.Or(l.LogAge, DefaultLogAge),
	}
}

// over reports whether the use exceeds the limit.
func over[T int | int64 | time.Duration](use, limit T) bool { return limit > 0 && use > limit }

// put sets the kernel's limits of a single process. guard checks the run as a whole; these
// limits stop a process that is faster than guard.
func (l Limits) put(pid int) error {
	for _, limit := range []struct {
		resource int
		most     uint64 // 0 means none
	}{
		{unix.RLIMIT_DATA, 2 * uint64(max(0, l.Memory))}, // twice, so that guard sees the excess first and names it
		{unix.RLIMIT_FSIZE, uint64(max(0, l.FileSize))},
		{unix.RLIMIT_NOFILE, uint64(max(0, l.OpenFiles))},
	} {
		if limit.most == 0 {
			continue
		}
		if err := lower(pid, limit.resource, limit.most, limit.most); err != nil {
			return err
		}
	}
	if l.CPU > 0 {
		if err := lower(pid, unix.RLIMIT_CPU, seconds(l.CPU), seconds(l.CPU)+killSeconds); err != nil {
			return err
		}
	}
	return lower(pid, unix.RLIMIT_CORE, 0, 0)
}

// wall is the limit of a run's cgroup: its memory, and its files, which may be in memory. A
// run reaches it when it grows faster than guard looks, or by the kernel's memory for it.
func (l Limits) wall() int64 {
	if l.Memory <= 0 || l.Disk <= 0 {
		return noWall
	}
	return l.Memory + l.Disk
}

// noWall exceeds the memory of any machine.
const noWall = 1 << 60

// killSeconds is the processor time between SIGXCPU and SIGKILL. Without it the kernel
// kills the process at the limit, and the reason is lost.
const killSeconds = 2

// seconds rounds up, because the kernel counts whole seconds.
func seconds(d time.Duration) uint64 {
	return uint64((max(0, d) + time.Second - 1) / time.Second)
}

// lower sets a limit unless the present one is lower.
func lower(pid, resource int, soft, hard uint64) error {
	var now unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &now); err != nil {
		return fmt.Errorf("read limit %d: %w", resource, err)
	}
	want := unix.Rlimit{Cur: min(soft, now.Max), Max: min(hard, now.Max)}
	if err := unix.Prlimit(pid, resource, &want, nil); err != nil {
		return fmt.Errorf("set limit %d: %w", resource, err)
	}
	return nil
}
