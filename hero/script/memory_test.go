package script

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"edda/internal/testkit"

	"golang.org/x/sys/unix"
)

// ways are scripts that would hold 400 MiB. Each defines step(), which holds 8 MiB more.
var ways = map[string]string{
	"of its own": "held = []\ndef step(): held.append(bytearray(os.urandom(8)) * (1 << 20))",
	"memfd":      "def step():\n    fd = os.memfd_create('x'); held.append(fd); os.write(fd, b'x' * (8 << 20))",
	"memfd closed": `
def step():
    fd = os.memfd_create('x'); os.write(fd, b'x' * (8 << 20))
    m = mmap.mmap(fd, 8 << 20); os.close(fd); m.madvise(mmap.MADV_DONTNEED); held.append(m)`,
	"shared mapping": "def step():\n    m = mmap.mmap(-1, 8 << 20); held.append(m); m.write(b'x' * (8 << 20))",
	"shared mapping out of sight": `
def step():
    m = mmap.mmap(-1, 8 << 20); held.append(m); m.write(b'x' * (8 << 20)); m.madvise(mmap.MADV_DONTNEED)`,
	"System V": `
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
libc.shmdt.argtypes = [ctypes.c_void_p]
def step():
    i = libc.shmget(0, 8 << 20, 0o1600)
    if i < 0: raise OSError(ctypes.get_errno(), "shmget")
    at = libc.shmat(i, None, 0); ctypes.memset(at, 120, 8 << 20); libc.shmdt(at); held.append(i)`,
	"a file system of its own": `
libc = ctypes.CDLL(None, use_errno=True)
def enter():
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(0x10000000 | 0x20000) != 0: raise OSError(ctypes.get_errno(), "unshare")
    open("/proc/self/setgroups", "w").write("deny")
    open("/proc/self/uid_map", "w").write("0 %d 1" % uid)
    open("/proc/self/gid_map", "w").write("0 %d 1" % gid)
    if libc.mount(b"tmpfs", b"/mnt", b"tmpfs", 0, None) != 0: raise OSError(ctypes.get_errno(), "mount")
def step():
    if not held: enter()
    held.append(1)
    open("/mnt/%d" % len(held), "wb").write(b"x" * (8 << 20))`,
	"processes that take their mark off": `
import resource
def step():
    if not held: resource.prlimit(0, 15, (1 << 40, 1 << 40))
    if os.fork() == 0:
        b = bytearray(8 << 20); b[::4096] = b"x" * 2048
        time.sleep(60)
    held.append(1)`,
	"processes that take their mark off the old way": fmt.Sprintf(`
libc = ctypes.CDLL(None, use_errno=True)
def step():
    if not held and libc.syscall(%d, 15, (ctypes.c_ulong * 2)(1 << 40, 1 << 40)) != 0: raise OSError(ctypes.get_errno(), "setrlimit")
    if os.fork() == 0:
        b = bytearray(8 << 20); b[::4096] = b"x" * 2048
        time.sleep(60)
    held.append(1)`, unix.SYS_SETRLIMIT),
	"a thousand processes' worth": `
def step():
    if os.fork() == 0:
        b = bytearray(8 << 20); b[::4096] = b"x" * 2048
        time.sleep(60)
    held.append(1)`,
}

const holds = `
import ctypes, json, mmap, os, sys, time
held = []
%s
why = ""
try:
    for i in range(50):
        step()
        time.sleep(0.02)
except OSError as e: why = type(e).__name__ + ": " + str(e.strerror)
time.sleep(3 if len(held) > 8 else 0)
print(json.dumps({"held": len(held) * 8, "why": why}))`

// bothModes returns the host as it is, and a copy without cgroups.
func bothModes(h *Host) map[string]*Host {
	return map[string]*Host{"as this machine has it": h, "without cgroups": {options: h.options}}
}

func TestASandboxHoldsNoMoreMemoryThanItMay(t *testing.T) {
	if !rooted(t) {
		return
	}
	const limit = 96
	for mode, h := range bothModes(newSandbox(t, func(o *Options) { o.Limits.Memory, o.Limits.Disk = limit<<20, 64<<20 })) {
		for name, way := range ways {
			t.Run(mode+"/"+name, func(t *testing.T) {
				out := runPython(t, h, Script{Source: fmt.Sprintf(holds, way), Timeout: time.Minute})
				held, err := strconv.Atoi(out.Result["held"])
				switch {
				case out.Reason == MemoryLimit:
				case out.OK && err == nil && held < limit && out.Result["why"] != "":
				default:
					t.Errorf("%+v", out)
				}
			})
		}
	}
}

func TestARunOutsideOfASandboxHoldsNoMoreThanItMayInWaysThatAreSeen(t *testing.T) {
	const limit = 96
	h := newHost(t, func(o *Options) { o.Limits.Memory, o.Limits.Disk = limit<<20, 64<<20 })
	for mode, h := range bothModes(h) {
		for _, name := range []string{"of its own", "memfd", "shared mapping", "a thousand processes' worth"} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				out := runPython(t, h, Script{Source: fmt.Sprintf(holds, ways[name]), Timeout: time.Minute})
				if out.Reason != MemoryLimit {
					t.Errorf("%+v", out)
				}
			})
		}
	}
}

func TestAScriptWithinItsMemoryIsNotEndedForItsFiles(t *testing.T) {
	if !rooted(t) {
		return
	}
	for mode, h := range bothModes(newSandbox(t, func(o *Options) { o.Limits.Memory, o.Limits.Disk = 96<<20, 128<<20 })) {
		out := runPython(t, h, Script{Source: `
import time
for i in range(12): open("f%d" % i, "wb").write(b"x" * (8 << 20))
mine = bytearray(40 << 20); mine[::4096] = b"x" * (40 << 8)
time.sleep(1.5)
print("well")`})
		if !out.OK {
			t.Errorf("%s: %+v", mode, out)
		}
	}
}

func TestManyEmptyFilesAreBounded(t *testing.T) {
	if !rooted(t) {
		return
	}
	out := runPython(t, newSandbox(t, nil), Script{Source: fmt.Sprintf(`
import json
n, why = 0, ""
try:
    while n < %d: open("f%%d" %% n, "w").close(); n += 1
except OSError as e: why = str(e.strerror)
print(json.dumps({"why": why}))`, maxEntries+100)})
	if !strings.Contains(out.Result["why"], "No space") {
		t.Errorf("%+v", out)
	}
}

func TestCgroupsAreFoundAsTheKernelShowsThem(t *testing.T) {
	const v1 = "9:name=systemd:/\n4:memory:/jobs/a\n1:cpu:/\n0::/\n"
	const v1mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n34 31 0:31 / /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory\n35 31 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	for name, tt := range map[string]struct {
		own, mounts, dir string
		unified          bool
	}{
		"version 1":                 {v1, v1mounts, "/sys/fs/cgroup/memory/jobs/a", false},
		"version 2":                 {"0::/system.slice/edda.service\n", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n", "/sys/fs/cgroup/system.slice/edda.service", true},
		"in a container":            {"0::/\n", "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "/sys/fs/cgroup", true},
		"a part of it is mounted":   {"4:memory:/docker/abc/x\n", "34 31 0:31 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "/sys/fs/cgroup/memory/x", false},
		"another part is mounted":   {"4:memory:/docker/abc\n", "34 31 0:31 /docker/other /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "", false},
		"mounted nowhere":           {"0::/a\n", "31 23 0:28 / / rw - ext4 /dev/sda rw\n", "", false},
		"no cgroups in this kernel": {"", "", "", false},
		"no sense at all":           {"x\n::\n", "x\n - \n", "", false},
	} {
		g, err := readCgroups(tt.own, tt.mounts)
		if tt.dir == "" {
			if err == nil {
				t.Errorf("%s: %+v", name, g)
			}
			continue
		}
		if err != nil || g.dir != tt.dir || g.unified != tt.unified {
			t.Errorf("%s: %+v %v", name, g, err)
		}
	}
}

func TestRunsLeaveNoCgroupBehind(t *testing.T) {
	h := newHost(t, nil)
	if h.cgroups == nil {
		return // without cgroups there is nothing to leave
	}
	// A host with its own cgroup, because other tests run at the same time.
	own := &cgroups{dir: filepath.Join(h.cgroups.dir, fmt.Sprintf("test-%d", newMark())), unified: h.cgroups.unified}
	testkit.Must(t, os.Mkdir(own.dir, 0o755))
	defer func() { _ = (&cgroup{dir: own.dir}).remove() }()
	if own.unified {
		testkit.Must(t, write(own.dir, cgroupSubtree, "+memory"))
	}
	h.cgroups = own
	left := func() []string {
		dirs, err := filepath.Glob(filepath.Join(h.cgroups.dir, "edda-*"))
		testkit.Must(t, err)
		return dirs
	}
	if out := runPython(t, h, Script{Source: "import os; print([l for l in open('/proc/self/cgroup') if 'test-' in l] != [])"}); out.Output != "True\n" {
		t.Errorf("it ran elsewhere: %+v", out)
	}
	if now := left(); len(now) > 0 {
		t.Errorf("a run left %v", now)
	}
	// The next host clears the cgroup of a dead one.
	c, err := h.claim("")
	testkit.Must(t, err)
	if _, err := h.cgroups.open(c.Mark, noWall); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, c.f.Close())
	swept := 0
	testkit.Until(t, 20*time.Second, "the claim is free", func() bool { // a process that another test forks holds it until it executes
		n, err := h.Sweep()
		testkit.Must(t, err)
		swept += n
		return swept > 0
	})
	if swept != 1 || len(left()) > 0 {
		t.Errorf("swept %d: %v", swept, left())
	}
}

func TestACgroupOfTheSecondVersion(t *testing.T) {
	dir := t.TempDir() // plain files, because this kernel may count memory in version 1
	for name, text := range map[string]string{cgroupControllers: "cpuset cpu io memory pids\n", cgroupSubtree: "\n", cgroupProcs: fmt.Sprintf("%d\n", os.Getpid())} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	g := &cgroups{dir: dir, unified: true}
	testkit.Must(t, os.Mkdir(filepath.Join(dir, ownCgroup), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, ownCgroup, cgroupProcs), nil, 0o644))
	testkit.Must(t, g.delegate())
	for path, want := range map[string]string{filepath.Join(ownCgroup, cgroupProcs): "0", cgroupSubtree: "+memory"} {
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %q %v", path, got, err)
		}
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, cgroupSubtree), nil, 0o644))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, cgroupProcs), []byte("1\n2\n"), 0o644))
	if err := g.delegate(); err == nil || !strings.Contains(err.Error(), "other processes") {
		t.Errorf("where others are: %v", err)
	}
	c := &cgroup{unified: true, dir: dir}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "memory.stat"), []byte("anon 4096\nfile 100\nshmem 8192\n"), 0o644))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "memory.events"), []byte("low 0\noom 1\noom_kill 1\n"), 0o644))
	if own, files, err := c.held(); own != 4096 || files != 8192 || err != nil || !c.killed() {
		t.Errorf("%d %d %v", own, files, err)
	}
}

func TestASandboxedScriptCannotMakeAUserNamespace(t *testing.T) {
	if !rooted(t) {
		return
	}
	for mode, h := range bothModes(newSandbox(t, nil)) {
		out := runPython(t, h, Script{Source: fmt.Sprintf(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(*a):
    got = libc.syscall(*a)
    if got == 0 and a[0] != %[1]d: os._exit(9)
    return got, ctypes.get_errno()
new = 0x10000000
args = (ctypes.c_ulong * 8)(new, 0, 0, 0, 17, 0, 0, 0)
print(tried(%[1]d, new), tried(%[2]d, new | 17, 0, 0, 0, 0), tried(%[3]d, args, 64))
print(os.fork() >= 0 and "forks")`, unix.SYS_UNSHARE, unix.SYS_CLONE, unix.SYS_CLONE3)})
		if !strings.HasPrefix(out.Output, fmt.Sprintf("(-1, %d) (-1, %d) (-1, %d)\nforks", unix.EPERM, unix.EPERM, unix.ENOSYS)) {
			t.Errorf("%s: %+v", mode, out)
		}
	}
}

func TestAProgramOfAnotherArchitectureFindsNoWayAround(t *testing.T) {
	if !rooted(t) {
		return
	}
	// memfd_create has another number in the x32 ABI.
	out := runPython(t, newSandbox(t, nil), Script{Source: fmt.Sprintf(`
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(0x40000000 + %d, b"x", 0), ctypes.get_errno())`, unix.SYS_MEMFD_CREATE)})
	if strings.TrimSpace(out.Output) != fmt.Sprintf("-1 %d", unix.ENOSYS) {
		t.Errorf("%+v", out)
	}
}
