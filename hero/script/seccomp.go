package script

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where struct seccomp_data has the system call's number, the architecture and
// the arguments. The low half of an argument comes first: every architecture
// that is listed below is little-endian.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
	argSize    = 8
	highHalf   = 4
)

// x32 is the bit of the numbers of another set of system calls, on amd64.
const x32 = 0x40000000

// filter is a program of the kernel's packet filter language.
type filter []unix.SockFilter

func (f *filter) statement(code uint16, k uint32) {
	*f = append(*f, unix.SockFilter{Code: code, K: k})
}

// load reads 32 bits of the call.
func (f *filter) load(at uint32) { f.statement(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at) }

// skipUnless goes on with the next statement where the comparison with k holds,
// and else skips n.
func (f *filter) skipUnless(comparison uint16, k uint32, n uint8) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | comparison | unix.BPF_K, Jf: n, K: k})
}

// refuse answers the call with an error.
func (f *filter) refuse(errno unix.Errno) {
	f.statement(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(errno))
}

// call refuses a system call whatever its arguments are. The number is loaded.
func (f *filter) call(number uint32, errno unix.Errno) {
	f.skipUnless(unix.BPF_JEQ, number, 1)
	f.refuse(errno)
}

// flag refuses a system call whose argument has one of the bits.
func (f *filter) flag(number uint32, arg, bits uint32, errno unix.Errno) {
	f.skipUnless(unix.BPF_JEQ, number, 4)
	f.load(dataArgs + argSize*arg)
	f.skipUnless(unix.BPF_JSET, bits, 1)
	f.refuse(errno)
	f.load(dataNumber)
}

// architectures are those whose numbers package unix has, under Go's names.
func architecture() (uint32, error) {
	switch runtime.GOARCH {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64, nil
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64, nil
	}
	return 0, fmt.Errorf("filter system calls: not on %s", runtime.GOARCH)
}

// sandboxFilter refuses what would take a run out of its bounds: another user
// namespace, in which it had the right to mount file systems in memory, and to
// take off the mark by which its processes are counted. Without a cgroup that
// counts it, it refuses all memory that belongs to no process, too: memfd and
// what System V has. Programs hear that this kernel has no such thing, or that
// they may not.
func sandboxFilter(counted bool) (filter, error) {
	arch, err := architecture()
	if err != nil {
		return nil, err
	}
	var f filter
	f.load(dataArch)
	f.skipUnless(unix.BPF_JEQ, arch, 1) // programs of another one have other numbers
	f.statement(unix.BPF_JMP|unix.BPF_JA, 1)
	f.refuse(unix.ENOSYS)
	f.load(dataNumber)
	f.skipUnless(unix.BPF_JGE, x32, 1)
	f.refuse(unix.ENOSYS)
	f.call(unix.SYS_CLONE3, unix.ENOSYS) // its flags are out of sight; C libraries go on with clone
	f.flag(unix.SYS_CLONE, 0, unix.CLONE_NEWUSER, unix.EPERM)
	f.flag(unix.SYS_UNSHARE, 0, unix.CLONE_NEWUSER, unix.EPERM)
	f.keepMark()
	if !counted {
		for _, number := range []uint32{unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET, unix.SYS_SHMGET, unix.SYS_SEMGET, unix.SYS_MSGGET} {
			f.call(number, unix.ENOSYS)
		}
	}
	f.statement(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW)
	return f, nil
}

// keepMark refuses to set the limit that the mark is, and lets it be read.
func (f *filter) keepMark() {
	f.skipUnless(unix.BPF_JEQ, unix.SYS_SETRLIMIT, 4)
	f.load(dataArgs)
	f.skipUnless(unix.BPF_JEQ, unix.RLIMIT_RTTIME, 1)
	f.refuse(unix.EPERM)
	f.load(dataNumber)

	f.skipUnless(unix.BPF_JEQ, unix.SYS_PRLIMIT64, 9)
	f.load(dataArgs + argSize)
	f.skipUnless(unix.BPF_JEQ, unix.RLIMIT_RTTIME, 6)
	f.load(dataArgs + 2*argSize) // where the new limit is: nowhere is a read
	f.skipUnless(unix.BPF_JEQ, 0, 3)
	f.load(dataArgs + 2*argSize + highHalf)
	f.skipUnless(unix.BPF_JEQ, 0, 1)
	f.statement(unix.BPF_JMP|unix.BPF_JA, 1)
	f.refuse(unix.EPERM)
	f.load(dataNumber)
}

// put filters the system calls of the calling thread, and of all that it starts.
func (f filter) put() error {
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(f)
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}
