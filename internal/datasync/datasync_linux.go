package datasync

import (
	"os"
	"syscall"
)

// Sync makes what was written to a file durable, and of what the system knows of it
// no more than is needed to read it: a file that did not grow costs one write.
func Sync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
