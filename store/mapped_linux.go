package store

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// statm says how much memory the process has, and stays open: it is looked at fifty
// times a second, and to open and close it takes most of the time that takes. A
// process that could not open it has -1.
var statm = sync.OnceValue(func() int {
	fd, err := syscall.Open("/proc/self/statm", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
})

// Mapped is how many bytes of files the process has in memory, most of them the
// store's; 0 where the system does not say.
func Mapped() int {
	var buf [128]byte // seven numbers
	n, err := syscall.Pread(statm(), buf[:], 0)
	if err != nil {
		return 0
	}
	fields := bytes.Fields(buf[:n])
	if len(fields) < 3 {
		return 0
	}
	pages, _ := strconv.Atoi(string(fields[2])) // 0 is what an error gives
	return pages * os.Getpagesize()
}

// unmap gives the pages of a mapping of a file back; the next look at one finds
// it again. It only costs time, so that a failure changes nothing.
func unmap(data, size uintptr) {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, data, size, syscall.MADV_DONTNEED)
}
