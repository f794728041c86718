package http1

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
)

// unpack has the body of an answer that came packed, because this package asked for
// that, read as if it had not. One without a body is as it was.
func unpack(resp *http.Response) {
	if !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		return
	}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength, resp.Uncompressed = -1, true
	resp.Body = &unpacked{packed: resp.Body}
}

// unpacked is a body that begins to be read with its first Read.
type unpacked struct {
	packed io.ReadCloser
	plain  *gzip.Reader
	err    error
}

func (u *unpacked) Read(p []byte) (int, error) {
	if u.plain == nil && u.err == nil {
		u.plain, u.err = gzip.NewReader(u.packed)
	}
	if u.err != nil {
		return 0, u.err
	}
	return u.plain.Read(p)
}

func (u *unpacked) Close() error { return u.packed.Close() }
