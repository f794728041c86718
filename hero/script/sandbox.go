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

// Sandbox isolates runs. The runner must be root. Each run is another user, in mount,
// process, network, IPC and host name namespaces of its own: it has no network, not even
// loopback, and sees only its own processes. File systems are read-only and grant no
// rights, except /tmp, which is in memory and holds at most Limits.Disk. The kernel ends
// all processes of a run at once. The sandbox does not hide files that everybody may read.
type Sandbox struct {
	UID, GID uint32 // the user and group of the scripts (65534, nobody)
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

// confine starts the process as the sandbox's user. It has no Pdeathsig, which takes a
// parent outside of the namespace for dead: it ends with the namespace's first process.
func (s *Sandbox) confine(cmd *exec.Cmd) {
	cmd.Dir = sandboxHome
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: s.UID, Gid: s.GID}}
}

// own sets the real user of the calling thread only: the kernel lets only the owner of a
// process limit it, unless the caller has that right for all processes. The thread keeps
// its other rights.
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

// sandboxed holds the namespaces of one run. They last as long as their first process.
type sandboxed struct {
	first *exec.Cmd
	stay  io.Closer // the first process ends when this is closed, or with this process
	tmp   *os.File  // the run's /tmp
}

// used returns the bytes of memory that /tmp takes.
func (r *sandboxed) used() int64 {
	var stat unix.Statfs_t
	if r.tmp == nil || unix.Fstatfs(int(r.tmp.Fd()), &stat) != nil {
		return 0
	}
	return int64(stat.Blocks-stat.Bfree) * stat.Bsize
}

// enter moves the calling thread into new namespaces, for good. Processes that it starts
// later are in them.
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
	if r.tmp, err = os.Open(sandboxHome); err != nil { // as this thread sees it
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

// firstProcess mounts /proc and stays. It must mount, because /proc shows the namespace of
// the process that mounted it.
const firstProcess = "mount -t proc proc /proc && echo ready && exec cat >/dev/null"

// open starts the first process. The other processes of the run cannot end it.
func open() (*sandboxed, error) {
	cmd := exec.Command("/bin/sh", "-c", firstProcess)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL} // the end of stay serves where that has no effect
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

// end has the kernel kill every process in the namespaces.
func (r *sandboxed) end() {
	_ = r.stay.Close()
	_ = r.first.Process.Kill()
}

// close ends every process and returns when all have ended. The first process is the last:
// the kernel keeps it until all others are reaped, by this process too.
func (r *sandboxed) close() {
	r.end()
	_ = r.first.Wait() // it was killed
	if r.tmp != nil {
		_ = r.tmp.Close() // open for reading only
	}
}

const sandboxAdvice = "start the runner as root with the rights to make namespaces (in a container: --cap-add SYS_ADMIN), or do without the sandbox"

// trySandbox checks at the start that the sandbox works here, and that its user may
// execute the interpreters.
func (h *Host) trySandbox() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("sandbox: this is user %d: %s", os.Geteuid(), sandboxAdvice)
	}
	// Once in a process, Go starts a child to test pidfd support. That child must not be the
	// first process of a namespace, so the test is made here.
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
	var programs []string // resolved outside of the sandbox, which has another /tmp
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
