package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// encode writes a request byte for byte as net/http does, and returns the host:port to dial. It
// reads the body to its end and closes it.
func encode(to *bytes.Buffer, req *http.Request) (address string, err error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	if err := valid(req); err != nil {
		return "", err
	}
	at, err := httpguts.PunycodeHostPort(req.URL.Host)
	if err != nil {
		return "", err
	}
	host, err := hostHeader(req, at)
	if err != nil {
		return "", err
	}
	uri := req.URL.RequestURI()
	if strings.ContainsFunc(uri, isControl) {
		return "", errors.New("the url has a control character")
	}
	line(to, req.Method, " ", uri, " HTTP/1.1")
	line(to, "Host: ", host)
	if agent := strings.TrimSpace(req.Header.Get("User-Agent")); agent != "" {
		line(to, "User-Agent: ", agent)
	}
	if req.Close {
		line(to, "Connection: close")
	}
	if req.ContentLength > 0 || saysLength(req.Method) {
		line(to, "Content-Length: ", strconv.FormatInt(req.ContentLength, 10))
	}
	if err := req.Header.WriteSubset(to, written); err != nil {
		return "", err
	}
	if asksForGzip(req) {
		line(to, "Accept-Encoding: gzip")
	}
	line(to)
	return hostPort(at), body(to, req)
}

func line(to *bytes.Buffer, parts ...string) {
	for _, p := range parts {
		to.WriteString(p)
	}
	to.WriteString("\r\n")
}

// written are the headers that encode writes by itself or that it leaves out.
var written = map[string]bool{
	"Host": true, "User-Agent": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true,
}

// saysLength reports whether a method sends Content-Length: 0 without a body.
func saysLength(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// asksForGzip reports whether the request asks for gzip, so that this package unpacks the answer.
// It does not for HEAD, which some servers answer wrongly, nor for a range, which is a part of the
// packed bytes.
func asksForGzip(req *http.Request) bool {
	return req.Method != http.MethodHead && req.Header.Get("Accept-Encoding") == "" && req.Header.Get("Range") == ""
}

// valid refuses a request that a server could read as two. The error shows no value, which may be
// secret.
func valid(req *http.Request) error {
	switch {
	case req.URL == nil || req.URL.Scheme != "http" || req.URL.Host == "":
		return errors.New("no address of plain http")
	case !httpguts.ValidHeaderFieldName(req.Method): // a method is a token, too
		return errors.New("no method")
	case req.ContentLength < 0 || len(req.TransferEncoding) > 0 || len(req.Trailer) > 0:
		return errors.New("a body whose length is not known")
	}
	for name, values := range req.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return errors.New("the name of a header is not allowed")
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("the value of header %s is not allowed", name)
			}
		}
	}
	return nil
}

// hostHeader returns the Host header: that of the request, or else the URL's host.
func hostHeader(req *http.Request, at string) (host string, err error) {
	if host = at; req.Host != "" {
		if host, err = httpguts.PunycodeHostPort(req.Host); err != nil {
			return "", err
		}
	}
	if !httpguts.ValidHostHeader(host) {
		return "", errors.New("the host is no name")
	}
	return withoutZone(host), nil
}

// withoutZone removes the zone of an IPv6 address, which has a meaning on this machine only (RFC
// 6874).
func withoutZone(host string) string {
	end := strings.LastIndexByte(host, ']')
	if !strings.HasPrefix(host, "[") || end < 0 {
		return host
	}
	if zone := strings.LastIndexByte(host[:end], '%'); zone >= 0 {
		return host[:zone] + host[end:]
	}
	return host
}

// hostPort adds port 80 to a URL's host that has none.
func hostPort(host string) string {
	u := url.URL{Host: host}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return host
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// body writes the request's body. It refuses one whose length is not ContentLength: the connection
// would be left in the middle of a request.
func body(to *bytes.Buffer, req *http.Request) error {
	if req.Body == nil || req.Body == http.NoBody {
		if req.ContentLength != 0 {
			return errors.New("a length without a body")
		}
		return nil
	}
	to.Grow(int(req.ContentLength) + 1)
	text := to.AvailableBuffer()[:req.ContentLength+1] // a byte more shows a body that is too long
	n, err := io.ReadFull(req.Body, text)
	switch {
	case int64(n) > req.ContentLength:
		return fmt.Errorf("a body of more than the %d bytes that it says it has", req.ContentLength)
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		return err
	case int64(n) < req.ContentLength:
		return fmt.Errorf("a body of %d bytes that says it has %d", n, req.ContentLength)
	}
	to.Write(text[:n])
	return nil
}
