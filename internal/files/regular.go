package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ErrNotRegular is why a name is not read: a pipe has no end until somebody writes, a
// device none at all.
var ErrNotRegular = errors.New("no regular file")

// patience bounds the reading of a file that waits although it is regular, as some of
// /proc do.
const patience = 10 * time.Second

// Regular reads a regular file up to most bytes and one more, by which the caller sees
// that it is larger. It never waits for a writer: anything but a regular file is
// [ErrNotRegular], also where it took the place of one just now.
func Regular(path string, most int64) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path) // opening a device may do something
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, nil, err
	}
	_ = f.SetReadDeadline(time.Now().Add(patience)) // a file of a disk knows none, and needs none
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	return text, info, err
}

func regular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s is %s, and %w", path, kind(info.Mode()), ErrNotRegular)
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "a " + m.Type().String()
}
