package script

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups makes a cgroup for each run, below the cgroup of this process. In it the kernel
// counts all memory of the run's processes: their own, files in memory, and the kernel's
// memory for them.
type cgroups struct {
	dir     string
	unified bool // version 2
}

// The files of both versions.
const (
	cgroupProcs       = "cgroup.procs"
	cgroupControllers = "cgroup.controllers"
	cgroupSubtree     = "cgroup.subtree_control"
	memoryController  = "memory"
	// ownCgroup is the child that this process moves to, because in version 2 only a cgroup
	// without processes may have children with limits.
	ownCgroup = "edda-main"
)

var errNoCgroup = errors.New("no cgroup of memory that this process may write")

// findCgroups finds the memory cgroup of this process, and tries to make a child.
func findCgroups() (*cgroups, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoCgroup, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoCgroup, err)
	}
	g, err := readCgroups(string(own), string(mounts))
	if err != nil {
		return nil, err
	}
	if g.unified {
		if err := g.delegate(); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errNoCgroup, g.dir, err)
		}
	}
	tried, err := g.open(newMark(), 1<<30)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errNoCgroup, g.dir, err)
	}
	if _, _, err := tried.held(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", errNoCgroup, g.dir, err), tried.remove())
	}
	return g, tried.remove()
}

// readCgroups finds the cgroup of this process in the hierarchy that counts memory, from
// /proc/self/cgroup and /proc/self/mountinfo.
func readCgroups(own, mounts string) (*cgroups, error) {
	unified, path, found := false, "", false
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(f) != 3:
		case slices.Contains(strings.Split(f[1], ","), memoryController): // version 1 has the controller, even beside version 2
			unified, path, found = false, f[2], true
		case f[0] == "0" && f[1] == "" && !found:
			unified, path, found = true, f[2], true
		}
	}
	if !found {
		return nil, errNoCgroup
	}
	for line := range strings.Lines(mounts) {
		// 31 23 0:28 /root /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory
		place, kind, ok := strings.Cut(line, " - ")
		at, what := strings.Fields(place), strings.Fields(kind)
		if !ok || len(at) < 5 || len(what) < 3 {
			continue
		}
		if unified && what[0] != "cgroup2" || !unified && (what[0] != "cgroup" || !slices.Contains(strings.Split(what[2], ","), memoryController)) {
			continue
		}
		below, ok := strings.CutPrefix(path, strings.TrimSuffix(at[3], "/"))
		if !ok {
			continue // this mount shows another part of the hierarchy
		}
		return &cgroups{dir: filepath.Join(at[4], below), unified: unified}, nil
	}
	return nil, fmt.Errorf("%w: it is mounted nowhere", errNoCgroup)
}

// delegate gives the children of the cgroup limits of memory. The kernel allows that only
// while the cgroup itself has no process, so this process, if it is alone there, moves into
// a child.
func (g *cgroups) delegate() error {
	if has, err := g.lists(cgroupSubtree); err != nil || has {
		return err
	}
	if has, err := g.lists(cgroupControllers); err != nil || !has {
		return errors.Join(errors.New("it does not have the controller memory"), err)
	}
	procs, err := os.ReadFile(filepath.Join(g.dir, cgroupProcs))
	if err != nil {
		return err
	}
	if self := strconv.Itoa(os.Getpid()); strings.TrimSpace(string(procs)) != self {
		return errors.New("other processes are in it, too")
	}
	own := filepath.Join(g.dir, ownCgroup)
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := write(own, cgroupProcs, "0"); err != nil {
		return err
	}
	return write(g.dir, cgroupSubtree, "+"+memoryController)
}

func (g *cgroups) lists(file string) (bool, error) {
	raw, err := os.ReadFile(filepath.Join(g.dir, file))
	return slices.Contains(strings.Fields(string(raw)), memoryController), err
}

func write(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0)
}

// cgroup is the cgroup of one run.
type cgroup struct {
	unified bool
	dir     string
}

func (g *cgroups) of(m mark) *cgroup {
	return &cgroup{unified: g.unified, dir: filepath.Join(g.dir, "edda-"+strconv.FormatUint(uint64(m), 10))}
}

// open creates the cgroup of a run and limits its memory to wall bytes.
func (g *cgroups) open(m mark, wall int64) (*cgroup, error) {
	c := g.of(m)
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, err
	}
	limit, swap := "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	most := strconv.FormatInt(wall, 10)
	swapped := most // version 1 counts memory and swap together
	if g.unified {
		limit, swap, swapped = "memory.max", "memory.swap.max", "0"
	}
	err := write(c.dir, limit, most)
	if err == nil {
		err = write(c.dir, swap, swapped)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			err = nil // this kernel does not count swap
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return c, nil
}

// add moves a process into the cgroup, which its later children inherit.
func (c *cgroup) add(pid int) error {
	if err := write(c.dir, cgroupProcs, strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("put process into its cgroup: %w", err)
	}
	return nil
}

// held returns the bytes of anonymous memory, and of files in memory, open or not.
func (c *cgroup) held() (anonymous, shared int64, err error) {
	raw, err := os.ReadFile(filepath.Join(c.dir, "memory.stat"))
	if err != nil {
		return 0, 0, err
	}
	own, files := "total_rss", "total_shmem"
	if c.unified {
		own, files = "anon", "shmem"
	}
	return valueOf(raw, own), valueOf(raw, files), nil
}

// killed reports whether the kernel killed a process because the cgroup was full.
func (c *cgroup) killed() bool {
	file := "memory.oom_control"
	if c.unified {
		file = "memory.events"
	}
	raw, err := os.ReadFile(filepath.Join(c.dir, file))
	return err == nil && valueOf(raw, "oom_kill") > 0
}

// removeWithin bounds the wait until the kernel has removed ended processes from a cgroup.
const removeWithin = 5 * time.Second

// remove removes the cgroup. Its processes must have ended.
func (c *cgroup) remove() error {
	var err error
	for until := time.Now().Add(removeWithin); time.Now().Before(until); time.Sleep(killPause) {
		if err = os.Remove(c.dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	return fmt.Errorf("remove cgroup: %w", err)
}
