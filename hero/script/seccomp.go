package script

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. The low half of an argument comes first, because every
// architecture below is little-endian.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
	argSize    = 8
	highHalf   = 4
)

// x32 is the bit that marks the system call numbers of the x32 ABI, on amd64.
const x32 = 0x40000000

// filter is a BPF program.
type filter []unix.SockFilter

func (f *filter) statement(code uint16, k uint32) {
	*f = append(*f, unix.SockFilter{Code: code, K: k})
}

// load reads 32 bits of struct seccomp_data.
func (f *filter) load(at uint32) { f.statement(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at) }

// skipUnless skips n statements unless the comparison with k holds.
func (f *filter) skipUnless(comparison uint16, k uint32, n uint8) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | comparison | unix.BPF_K, Jf: n, K: k})
}

// refuse returns an error from the system call.
func (f *filter) refuse(errno unix.Errno) {
	f.statement(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(errno))
}

// call refuses a system call with any arguments. The number must be loaded.
func (f *filter) call(number uint32, errno unix.Errno) {
	f.skipUnless(unix.BPF_JEQ, number, 1)
	f.refuse(errno)
}

// flag refuses a system call whose argument has one of the bits. The number must be loaded.
func (f *filter) flag(number uint32, arg, bits uint32, errno unix.Errno) {
	f.skipUnless(unix.BPF_JEQ, number, 4)
	f.load(dataArgs + argSize*arg)
	f.skipUnless(unix.BPF_JSET, bits, 1)
	f.refuse(errno)
	f.load(dataNumber)
}

// architecture returns the kernel's number of this architecture, where package unix has
// its system calls.
func architecture() (uint32, error) {
	switch runtime.GOARCH {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64, nil
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64, nil
	}
	return 0, fmt.Errorf("filter system calls: not on %s", runtime.GOARCH)
}

// sandboxFilter refuses the system calls that would free a run of its limits: making a user
// namespace, where it could mount file systems in memory, and changing its mark. Without a
// cgroup it also refuses memory that belongs to no process: memfd and System V IPC. The
// refused calls fail with ENOSYS or EPERM.
func sandboxFilter(counted bool) (filter, error) {
	arch, err := architecture()
	if err != nil {
		return nil, err
	}
	var f filter
	f.load(dataArch)
	f.skipUnless(unix.BPF_JEQ, arch, 1) // another architecture has other numbers
	f.statement(unix.BPF_JMP|unix.BPF_JA, 1)
	f.refuse(unix.ENOSYS)
	f.load(dataNumber)
	f.skipUnless(unix.BPF_JGE, x32, 1)
	f.refuse(unix.ENOSYS)
	f.call(unix.SYS_CLONE3, unix.ENOSYS) // a filter cannot read its flags; C libraries fall back to clone
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

// keepMark refuses to set RLIMIT_RTTIME, the mark, and allows to read it.
func (f *filter) keepMark() {
	f.skipUnless(unix.BPF_JEQ, unix.SYS_SETRLIMIT, 4)
	f.load(dataArgs)
	f.skipUnless(unix.BPF_JEQ, unix.RLIMIT_RTTIME, 1)
	f.refuse(unix.EPERM)
	f.load(dataNumber)

	f.skipUnless(unix.BPF_JEQ, unix.SYS_PRLIMIT64, 9)
	f.load(dataArgs + argSize)
	f.skipUnless(unix.BPF_JEQ, unix.RLIMIT_RTTIME, 6)
	f.load(dataArgs + 2*argSize) // the pointer to the new limit; a null pointer only reads
	f.skipUnless(unix.BPF_JEQ, 0, 3)
	f.load(dataArgs + 2*argSize + highHalf)
	f.skipUnless(unix.BPF_JEQ, 0, 1)
	f.statement(unix.BPF_JMP|unix.BPF_JA, 1)
	f.refuse(unix.EPERM)
	f.load(dataNumber)
}

// put installs the filter for the calling thread and the processes that it starts.
func (f filter) put() error {
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(f)
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}
