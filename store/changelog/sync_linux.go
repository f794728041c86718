package changelog

import (
	"os"
	"syscall"
)

// fdatasync makes what was written to a file durable, and of what the system knows of it
// no more than is needed to read it: a file that did not grow costs one write.
func fdatasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
