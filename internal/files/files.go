// Package files reads small files that people name: settings, tokens, keys. Such a file
// may be a pipe, so that a secret need not lie on a disk. Every read has a bound,
// because a device has no end.
package files

import (
	"crypto/tls"
	"fmt"
	"io"
	"os"
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
