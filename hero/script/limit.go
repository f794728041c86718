package script

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// put sets what the kernel limits for each process by itself: the last wall,
// before the looks at the whole run come to it.
func (l Limits) put(pid int) error {
	for _, limit := range []struct {
		resource int
		most     uint64 // 0 means none
	}{
		{unix.RLIMIT_DATA, 2 * uint64(max(0, l.Memory))}, // twice, so that it is seen and said why
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

// wall is what all of a run holds at most, in its cgroup: its memory, and its
// files where they are in memory. It is reached by what grows faster than it is
// looked at, and by what the kernel keeps for the run.
func (l Limits) wall() int64 {
	if l.Memory <= 0 || l.Disk <= 0 {
		return noWall
	}
	return l.Memory + l.Disk
}

// noWall is more than any machine has.
const noWall = 1 << 60

// killSeconds is how much processor time a process may use after the signal that
// says it has used too much; at the limit itself the kernel would only kill it.
const killSeconds = 2

// seconds rounds up: the kernel counts whole ones.
func seconds(d time.Duration) uint64 {
	return uint64((max(0, d) + time.Second - 1) / time.Second)
}

// lower sets a limit, or leaves one that is lower already.
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
