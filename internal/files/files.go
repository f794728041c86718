// Package files reads small files that people name: settings, tokens, keys. Such a file
// may be a pipe, so that a secret need not lie on a disk. Every read has a bound,
// because a device has no end.
package files

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Most bounds files that people write, in bytes.
const Most = 1 << 20

// Read reads a file of at most most bytes. A larger file is an error.
func Read(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes: name another file", path, most)
	}
	return text, nil
}

// KeyPair reads a certificate and its key, each at most [Most] bytes.
func KeyPair(cert, key string) (pair tls.Certificate, err error) {
	certificate, err := Read(cert, Most)
	if err != nil {
		return pair, err
	}
	secret, err := Read(key, Most)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(certificate, secret)
}

// ErrNotRegular says that Regular refused a pipe, a device or a directory, because
// reading one may block.
var ErrNotRegular = errors.New("no regular file")

// readTimeout bounds the read of a regular file that blocks, as some files in /proc do.
const readTimeout = 10 * time.Second

// Regular reads a regular file. It returns at most most+1 bytes: the extra byte tells the
// caller that the file is larger. It never waits for a writer. Anything but a regular
// file is [ErrNotRegular], even if it has just replaced a regular file.
func Regular(path string, most int64) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path) // before Open, because opening a device may have an effect
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
	_ = f.SetReadDeadline(time.Now().Add(readTimeout)) // files on a disk do not support it and do not block
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
