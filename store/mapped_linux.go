package store

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// Mapped is how many bytes of files the process has in memory, most of them the
// store's; 0 where the system does not say.
func Mapped() int {
	raw, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(raw)
	if err != nil || len(fields) < 3 {
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
