package script

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel limits single processes. guard measures what they use together.
const (
	lookEvery = 50 * time.Millisecond
	// maxEntries bounds the walk through a temporary folder. A folder with more files
	// exceeds its limit.
	maxEntries = 100_000
	// slowEvery is the number of looks for each look at the folder and at open files.
	slowEvery = 10
)

// verdict is the reason to end a run.
type verdict struct{ reason, detail string }

// excess returns the limit that the run's processes exceed together, if any.
func (r *run) excess(look int) (verdict, bool) {
	live := r.mark.processes(r.pid)
	l := r.host.options.Limits
	var cpu time.Duration
	var own, memory int64
	for _, p := range live {
		cpu += p.cpu
		own += p.resident
		memory += p.resident + p.mapped
	}
	if over(memory, l.Memory) {
		memory = shared(live, wholePss) // resident counts a shared page once for each fork
	}
	switch {
	case r.cgroup != nil:
		memory = max(memory, r.counted(l))
	case look%slowEvery == 0:
		files := inNoFileSystem(live)
		if over(own+files, l.Memory) {
			own = shared(live, ownPss)
		}
		memory = max(memory, own+files)
	}
	switch {
	case over(len(live), l.Processes):
		return verdict{ProcessLimit, fmt.Sprintf("more than %d processes", l.Processes)}, true
	case over(memory, l.Memory), r.cgroup != nil && r.cgroup.killed():
		return tooMuchMemory(l), true
	case over(cpu, l.CPU):
		return tooMuchCPU(l), true
	case l.Disk > 0 && look%slowEvery == 0 && over(diskUse(r.folder), l.Disk):
		return verdict{DiskLimit, fmt.Sprintf("more than %d bytes, or %d files, in its temporary folder", l.Disk, maxEntries)}, true
	}
	return verdict{}, false
}

// counted returns the bytes that the cgroup counts, without the files in the temporary
// folder, which have a limit of their own.
func (r *run) counted(l Limits) int64 {
	own, files, err := r.cgroup.held()
	if err != nil || !over(own+files, l.Memory) {
		return own + files
	}
	if r.room != nil {
		return own + max(0, files-r.room.used())
	}
	if inMemory(r.folder) {
		return own + max(0, files-diskUse(r.folder))
	}
	return own + files
}

// inMemory reports whether the folder is on a file system in memory.
func inMemory(folder string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(folder, &stat) == nil && stat.Type == unix.TMPFS_MAGIC
}

// The kernel's names of files in memory that are in no file system: those of memfd_create,
// and of shared anonymous mappings.
const (
	memfdName   = "/memfd:"
	mappingName = "/dev/zero (deleted)"
)

// inNoFileSystem sums the bytes of such files that the processes have open or map, even
// where they touched no page. No other count of a process includes them. It serves where
// there is no cgroup.
func inNoFileSystem(live []proc) int64 {
	files := memoryFiles{}
	for _, p := range live {
		dir := filepath.Join("/proc", strconv.Itoa(p.pid))
		entries, _ := os.ReadDir(filepath.Join(dir, "fd")) // a process that has ended holds nothing
		for _, e := range entries {
			path := filepath.Join(dir, "fd", e.Name())
			if name, err := os.Readlink(path); err == nil && strings.HasPrefix(name, memfdName) {
				files.add(path)
			}
		}
		maps, _ := os.ReadFile(filepath.Join(dir, "maps"))
		for line := range strings.Lines(string(maps)) {
			if strings.Contains(line, memfdName) || strings.Contains(line, mappingName) {
				at, _, _ := strings.Cut(line, " ")
				files.add(filepath.Join(dir, "map_files", at)) // readable by root only; mapped serves for others
			}
		}
	}
	var sum int64
	for _, size := range files {
		sum += size
	}
	return sum
}

// memoryFiles maps a file, by device and inode, to its size in bytes.
type memoryFiles map[[2]uint64]int64

func (m memoryFiles) add(path string) {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) == nil {
		m[[2]uint64{stat.Dev, stat.Ino}] = stat.Blocks * blockSize
	}
}

// blockSize is the unit of stat's blocks, whatever the file system's own is.
const blockSize = 512

func tooMuchMemory(l Limits) verdict {
	return verdict{MemoryLimit, fmt.Sprintf("more than %d bytes", l.Memory)}
}

func tooMuchCPU(l Limits) verdict {
	return verdict{CPULimit, fmt.Sprintf("more than %s of processor time", l.CPU)}
}

func shared(live []proc, which string) int64 {
	var sum int64
	for _, p := range live {
		sum += p.proportional(which)
	}
	return sum
}

// diskUse sums the bytes of the files in a folder. It may miss concurrent changes.
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
