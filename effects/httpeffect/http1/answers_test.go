package http1

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func packed(text string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return out.String()
}

// answers are what other sides say, right and wrong.
func answers() map[string]string {
	said := map[string]string{
		"a length":               "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nx-a: 2\r\n\r\nhello",
		"a length of nothing":    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"more than its length":   "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, you",
		"less than its length":   "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
		"two lengths":            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"the same length twice":  "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		"a length below nothing": "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
		"no length":              "HTTP/1.1 200 OK\r\n\r\nhello",
		"to the end, closing":    "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
		"a length, closing":      "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
		"chunks":                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
		"chunks and a trailer":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n",
		"chunks and a length":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"chunks that break off":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
		"chunks without the end": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"chunks that are none":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\nhello\r\n0\r\n\r\n",
		"a trailer too long":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + strings.Repeat("x", 5000) + "\r\n\r\n",
		"another encoding":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
		"two encodings":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"1.0":                    "HTTP/1.0 200 OK\r\n\r\nhello",
		"1.0, a length":          "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"1.0, kept":              "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
		"1.0, chunks":            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"no content":             "HTTP/1.1 204 No Content\r\n\r\n",
		"no content, and some":   "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
		"no content in chunks":   "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"not modified":           "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n",
		"go on":                  "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello",
		"hints":                  "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"go on, and no more":     "HTTP/1.1 100 Continue\r\n\r\n",
		"go on for ever":         strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxHeader/20),
		"hints for ever":         strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("x", 1000)+"\r\n\r\n", maxHeader/1000),
		"below 100":              "HTTP/1.1 099 Odd\r\nContent-Length: 5\r\n\r\nhello",
		"nothing":                "",
		"an end of line":         "\r\n",
		"a line":                 "HTTP/1.1 200 OK",
		"a line and its end":     "HTTP/1.1 200 OK\r\n",
		"half of the headers":    "HTTP/1.1 200 OK\r\nContent-Le",
		"no status":              "HTTP/1.1\r\n\r\n",
		"a status of words":      "HTTP/1.1 two OK\r\n\r\n",
		"a status too long":      "HTTP/1.1 2000 OK\r\n\r\n",
		"no reason":              "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
		"another protocol":       "SSH-2.0-OpenSSH_9.6\r\n",
		"another version":        "HTTP/3.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"version 2":              "HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"TLS":                    "\x15\x03\x01\x00\x02\x02\x16",
		"a header without colon": "HTTP/1.1 200 OK\r\nContent-Length 5\r\n\r\nhello",
		"a header with a space":  "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
		"a header over lines":    "HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
		"ends of line without r": "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
		"headers too long":       "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHeader) + "\r\nContent-Length: 5\r\n\r\nhello",
		"headers that just fit":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHeader-100) + "\r\nContent-Length: 5\r\n\r\nhello",
		"cookies":                "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nContent-Length: 0\r\n\r\n",
		"pragma":                 "HTTP/1.1 200 OK\r\nPragma: no-cache\r\nContent-Length: 0\r\n\r\n",
		"a large body":           "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 300000),
		"another packing":        "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
		"not packed after all":   "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
		"nothing, packed":        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
		"packed, not modified":   "HTTP/1.1 304 Not Modified\r\nContent-Encoding: gzip\r\n\r\n",
	}
	z := packed(strings.Repeat("hello", 1000))
	said["packed"] = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(z), z)
	said["packed, broken off"] = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(z), z[:len(z)/2])
	said["half of it packed"] = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(z)/2, z[:len(z)/2])
	said["packed in chunks"] = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: GZIP\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(z), z)
	said["packed to the end"] = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + z
	said["packed, and more"] = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + z + "more"
	return said
}

// TestAnswersAreWhatTheyAreToNetHTTP, over connections that the other side closes
// behind them.
func TestAnswersAreWhatTheyAreToNetHTTP(t *testing.T) {
	for name, said := range answers() {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			ours, theirs := heard(t, "http1", method, said), heard(t, "net/http", method, said)
			if ours != theirs {
				t.Errorf("%s to %s:\n%.300s\nwant\n%.300s", name, method, ours, theirs)
			}
		}
	}
}

func FuzzAnswers(f *testing.F) {
	for _, said := range answers() {
		if len(said) < 1<<10 { // the fuzzer takes its time with longer ones
			f.Add(said)
		}
	}
	f.Fuzz(func(t *testing.T, said string) {
		if strings.Contains(said, " 101") {
			return // net/http hands the connection over, of which nobody asked
		}
		for _, method := range []string{"GET", "HEAD"} {
			if ours, theirs := heard(t, "http1", method, said), heard(t, "net/http", method, said); ours != theirs {
				t.Errorf("%s:\n%s\nwant\n%s", method, ours, theirs)
			}
		}
	})
}

// heard is all that comes of a call which is answered so.
func heard(t *testing.T, over, method, said string) string {
	dial := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go say(far, said)
		return near, nil
	}
	rt := http.RoundTripper(New(Options{Dial: dial, MaxIdle: 1, MaxIdleTime: time.Minute, MaxHeader: maxHeader}))
	if over == "net/http" {
		theirs := &http.Transport{DialContext: dial, MaxResponseHeaderBytes: maxHeader}
		defer theirs.CloseIdleConnections()
		rt = theirs
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://pay.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return "no answer"
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if ctx.Err() != nil {
		t.Errorf("%s: %v", over, ctx.Err())
	}
	return fmt.Sprintf("%s %s %v %v length %d, unpacked %t, closing %t, trailer %v, broken %t: %q",
		resp.Proto, resp.Status, resp.Header, resp.TransferEncoding, resp.ContentLength, resp.Uncompressed, resp.Close, resp.Trailer, err != nil, body)
}

// say reads a request and answers it.
func say(conn net.Conn, said string) {
	defer conn.Close()
	if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(conn, said)
	}
}

// TestConnectionsAreKeptWhereNetHTTPKeepsThem: the other side leaves them open.
func TestConnectionsAreKeptWhereNetHTTPKeepsThem(t *testing.T) {
	for name, said := range answers() {
		if whole := framed(t, said); !whole {
			continue // it ends with the connection
		}
		for _, method := range []string{"GET", "HEAD"} {
			if method == "HEAD" && (strings.Contains(said, "chunked") || !strings.Contains(said, "\r\n\r\n")) {
				continue // it cannot be told where its head ends
			}
			if ours, theirs := connections(t, "http1", method, said), connections(t, "net/http", method, said); ours != theirs {
				t.Errorf("%s to %s: %d connections for two calls, with net/http %d", name, method, ours, theirs)
			}
		}
	}
}

// framed tells of an answer that says itself where it ends, and ends there.
func framed(t *testing.T, said string) bool {
	in := bufio.NewReader(strings.NewReader(said))
	for {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://pay.test/", nil)
		resp, err := http.ReadResponse(in, req)
		if err != nil {
			return false
		}
		if resp.StatusCode/100 == 1 {
			continue
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err == nil && in.Buffered() == 0 && (resp.ContentLength >= 0 || resp.TransferEncoding != nil)
	}
}

// connections are how many two calls take that are answered so.
func connections(t *testing.T, over, method, said string) int {
	if method == http.MethodHead {
		said = said[:strings.LastIndex(said, "\r\n\r\n")+4]
	}
	s := serveRaw(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			_, _ = io.WriteString(conn, said)
		}
	})
	rt := transportOf(t, over)
	for range 2 {
		resp, err := rt.RoundTrip(request(t, method, s.address, ""))
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return s.connections()
}
