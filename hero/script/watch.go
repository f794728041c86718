package script

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// The kernel limits single processes; what they use together is looked at.
const (
	lookEvery = 50 * time.Millisecond
	// maxEntries bounds the look at a temporary folder; one with more files than
	// that is over its limit.
	maxEntries = 100_000
	// diskEvery is how many looks go by between two at the folder.
	diskEvery = 10
)

// verdict is why a run has to end.
type verdict struct{ reason, detail string }

// excess tells which limit the run's processes are over together, if any.
func (r *run) excess(look int) (verdict, bool) {
	live := r.mark.processes(r.pid)
	l := r.host.options.Limits
	var cpu time.Duration
	var memory int64
	for _, p := range live {
		cpu += p.cpu
		memory += p.resident
	}
	if over(memory, l.Memory) {
		memory = shared(live) // forks count what they share each
	}
	switch {
	case over(len(live), l.Processes):
		return verdict{ProcessLimit, fmt.Sprintf("more than %d processes", l.Processes)}, true
	case over(memory, l.Memory):
		return tooMuchMemory(l), true
	case over(cpu, l.CPU):
		return tooMuchCPU(l), true
	case l.Disk > 0 && look%diskEvery == 0 && over(diskUse(r.folder), l.Disk):
		return verdict{DiskLimit, fmt.Sprintf("more than %d bytes, or %d files, in its temporary folder", l.Disk, maxEntries)}, true
	}
	return verdict{}, false
}

func tooMuchMemory(l Limits) verdict {
	return verdict{MemoryLimit, fmt.Sprintf("more than %d bytes", l.Memory)}
}

func tooMuchCPU(l Limits) verdict {
	return verdict{CPULimit, fmt.Sprintf("more than %s of processor time", l.CPU)}
}

func shared(live []proc) int64 {
	var sum int64
	for _, p := range live {
		sum += p.proportional()
	}
	return sum
}

// diskUse is how many bytes lie in a folder; what changes meanwhile may be missed.
func diskUse(folder string) int64 {
	var sum int64
	entries := 0
	_ = filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was just removed, or made unreadable
		}
		if entries++; entries > maxEntries {
			sum = 1<<63 - 1
			return filepath.SkipAll
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
