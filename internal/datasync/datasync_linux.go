package datasync

import (
	"os"
	"syscall"
)

// Sync makes the written data of a file durable with fdatasync. It skips metadata that
// reading does not need, so a file that did not grow costs one write.
func Sync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
