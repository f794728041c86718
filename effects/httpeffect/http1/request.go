package http1

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// encode writes a request as net/http does, byte for byte, and tells where it goes.
// It reads the body and closes it.
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

// written are the headers that have a place of their own.
var written = map[string]bool{
	"Host": true, "User-Agent": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true,
}

// saysLength tells of methods whose servers want to know that there is no body.
func saysLength(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// asksForGzip tells whether the answer may be packed, and is unpacked here: some
// servers pack what has no body, and a part of what was packed is no answer.
func asksForGzip(req *http.Request) bool {
	return req.Method != http.MethodHead && req.Header.Get("Accept-Encoding") == "" && req.Header.Get("Range") == ""
}

// valid keeps a request from being two: it says what is wrong and no value, which may be secret.
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

// hostHeader is the host that is asked, at the address unless the request names another.
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

// withoutZone leaves out what an IPv6 address means on this machine alone (RFC 6874).
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

// hostPort is where to dial what a url calls its host.
func hostPort(host string) string {
	u := url.URL{Host: host}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return host
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// body writes all of it: one that is not as long as it says would leave the
// connection in the middle of a request.
func body(to *bytes.Buffer, req *http.Request) error {
	if req.Body == nil || req.Body == http.NoBody {
		if req.ContentLength != 0 {
			return errors.New("a length without a body")
		}
		return nil
	}
	to.Grow(int(req.ContentLength) + bytes.MinRead) // the end is read, too
	n, err := to.ReadFrom(req.Body)
	if err == nil && n != req.ContentLength {
		err = fmt.Errorf("a body of %d bytes that says it has %d", n, req.ContentLength)
	}
	return err
}
