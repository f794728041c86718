package script

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sandbox is how far runs are shut off. It needs a runner that root started:
// each run is another user, in mount, process, network, IPC and host name
// namespaces of its own. It sees no network, not even loopback, and no process
// but its own. Every file system is read-only to it, and gives it no rights; /tmp, its
// only place to write to, is in memory and holds Limits.Disk at most. The kernel
// ends all that is in it at once. It does not hide files that everybody may read.
type Sandbox struct {
	UID, GID uint32 // who runs the scripts (65534, nobody)
}

const (
	nobodyID    = 65534
	sandboxHome = "/tmp"
	namespaces  = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID
)

func (s *Sandbox) validate() {
	if s.UID == 0 {
		s.UID = nobodyID
	}
	if s.GID == 0 {
		s.GID = nobodyID
	}
}

// confine makes the process the other user. When we die, it ends with the room's
// first process: its own parent is out of sight, which Pdeathsig takes for dead.
func (s *Sandbox) confine(cmd *exec.Cmd) {
	cmd.Dir = sandboxHome
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: s.UID, Gid: s.GID}}
}

// own makes the other user the real one of the calling thread, and of no other:
// the kernel lets only the owner of a process limit it, unless the caller has the
// right to do so for all. The thread keeps its rights otherwise.
func (s *Sandbox) own() error {
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(s.GID), keep, keep); errno != 0 {
		return fmt.Errorf("own the process: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(s.UID), keep, keep); errno != 0 {
		return fmt.Errorf("own the process: %w", errno)
	}
	return nil
}

// sandboxed is the namespaces of one run. They last as long as their first process.
type sandboxed struct {
	first *exec.Cmd
	stay  io.Closer // the first process ends when this is closed, or with us
	tmp   *os.File  // its /tmp
}

// used is how many bytes of memory its /tmp takes.
func (r *sandboxed) used() int64 {
	var stat unix.Statfs_t
	if r.tmp == nil || unix.Fstatfs(int(r.tmp.Fd()), &stat) != nil {
		return 0
	}
	return int64(stat.Blocks-stat.Bfree) * stat.Bsize
}

// enter puts the calling thread into namespaces of its own, for good. What it
// starts from then on is in there.
func (s *Sandbox) enter(l Limits, counted bool) (*sandboxed, error) {
	f, err := sandboxFilter(counted)
	if err != nil {
		return nil, err
	}
	if err := unix.Unshare(namespaces); err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	if err := s.mounts(l); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("give up new rights: %w", err)
	}
	if err := f.put(); err != nil {
		return nil, err
	}
	r, err := open()
	if err != nil {
		return nil, err
	}
	if r.tmp, err = os.Open(sandboxHome); err != nil { // this thread sees the room's
		r.close()
		return nil, fmt.Errorf("open %s: %w", sandboxHome, err)
	}
	return r, nil
}

func (s *Sandbox) mounts(l Limits) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make files read-only: %w", err)
	}
	// An empty file takes memory, too.
	data := fmt.Sprintf("mode=0700,uid=%d,gid=%d,nr_inodes=%d", s.UID, s.GID, maxEntries)
	if l.Disk > 0 {
		data += fmt.Sprintf(",size=%d", l.Disk)
	}
	if err := unix.Mount("tmpfs", sandboxHome, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount %s: %w", sandboxHome, err)
	}
	return nil
}

// firstProcess shows the others in /proc and stays. A process cannot do this
// from outside: /proc shows the namespace of the process that mounted it.
const firstProcess = "mount -t proc proc /proc && echo ready && exec cat >/dev/null"

// open starts the first process. The others' ends do not matter to it, and it
// cannot be ended by them.
func open() (*sandboxed, error) {
	cmd := exec.Command("/bin/sh", "-c", firstProcess)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL} // and the end of stay, where that has no effect
	stay, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var wrong strings.Builder
	cmd.Stderr = &wrong
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("first process: %w", err)
	}
	r := &sandboxed{first: cmd, stay: stay}
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "ready\n" {
		r.close()
		return nil, fmt.Errorf("first process: %q, %w: %s", line, err, wrong.String())
	}
	return r, nil
}

// end has the kernel kill everything that is in there.
func (r *sandboxed) end() {
	_ = r.stay.Close()
	_ = r.first.Process.Kill()
}

// close ends everything and returns when nothing is left. The first process is
// the last to go: it waits until all others have been waited for, by us, too.
func (r *sandboxed) close() {
	r.end()
	_ = r.first.Wait() // how it ends does not matter
	if r.tmp != nil {
		_ = r.tmp.Close() // it was only looked at
	}
}

const sandboxAdvice = "start the runner as root with the rights to make namespaces (in a container: --cap-add SYS_ADMIN), or do without the sandbox"

// trySandbox tells at the start whether runs can be shut off, and whether the
// other user may execute the interpreters.
func (h *Host) trySandbox() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("sandbox: this is user %d: %s", os.Geteuid(), sandboxAdvice)
	}
	// Go looks once whether the kernel can start processes as it likes, by
	// starting one: it must not be the first of a namespace.
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		failed <- h.tryRoom()
	}()
	if err := <-failed; err != nil {
		return fmt.Errorf("sandbox: %w: %s", err, sandboxAdvice)
	}
	return nil
}

func (h *Host) tryRoom() error {
	var programs []string // as they are called outside: /tmp is another one inside
	for _, line := range h.options.Interpreters {
		program, err := filepath.EvalSymlinks(line[0])
		if err != nil {
			return err
		}
		programs = append(programs, program)
	}
	s := h.options.Sandbox
	room, err := s.enter(h.options.Limits, h.cgroups != nil)
	if err != nil {
		return err
	}
	defer room.close()
	for _, program := range programs {
		cmd := exec.Command("/bin/sh", "-c", `test -x "$1"`, "sh", program)
		s.confine(cmd)
		if err := cmd.Run(); err != nil {
			return errors.Join(fmt.Errorf("user %d may not execute %s: install it where everybody may", s.UID, program), ended(err))
		}
	}
	return nil
}
