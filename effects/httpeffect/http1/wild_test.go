package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestWhateverHappensNoCallIsMadeTwiceOrHasTheAnswerOfAnother, nor is one said not to
// have been sent that was seen. The other side does all that it should not, and contexts
// end at any moment.
func TestWhateverHappensNoCallIsMadeTwiceOrHasTheAnswerOfAnother(t *testing.T) {
	w := &wild{seen: map[string]int{}}
	s := serveRaw(t, w.serve)
	over := open(t)
	var all sync.WaitGroup
	var unsent sync.Map
	for i := range 8 {
		all.Go(func() {
			for n := range 60 {
				path := fmt.Sprintf("/call-%d-%d", i, n)
				err := wildCall(t, over, s.address, path)
				if errors.Is(err, ErrUnsent) {
					unsent.Store(path, err)
				}
			}
		})
	}
	all.Wait()
	over.CloseIdleConnections()
	s.finish() // it has seen all that it ever will
	for path, n := range w.seen {
		if n > 1 {
			t.Errorf("%s was sent %d times", path, n)
		}
		if err, is := unsent.Load(path); is {
			t.Errorf("%s was sent: %v", path, err)
		}
	}
}

// wildCall makes a call that is cut, read and left at random.
func wildCall(t *testing.T, over *Transport, address, path string) error {
	sizes := []int{10, 10, 10, writtenAtOnce - 300, writtenAtOnce + 1, 300 << 10}
	size := sizes[rand.IntN(len(sizes))]
	if rand.IntN(30) == 0 { // seldom, because it takes the time of hundreds of others
		size = 16 << 20 // more than the sockets' buffers take
	}
	req := request(t, http.MethodPost, address, strings.Repeat("x", size))
	req.URL.Path = path
	soon := time.Duration(rand.IntN(2000)) * time.Microsecond
	switch rand.IntN(4) {
	case 0:
		ctx, cancel := context.WithTimeout(req.Context(), soon)
		defer cancel()
		req = req.WithContext(ctx)
	case 1:
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer time.AfterFunc(soon, cancel).Stop()
		req = req.WithContext(ctx)
	}
	resp, err := over.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if rand.IntN(20) == 0 {
		return nil // its body is not read
	}
	got, err := io.ReadAll(resp.Body)
	if said := strings.TrimRight(string(got), " "); said != path && (err == nil || !strings.HasPrefix(path, said)) {
		t.Errorf("%s has the answer %.50q, %v", path, got, err)
	}
	return err
}

// wild is a server that does all that one should not. It says of which call each answer is.
type wild struct {
	mu   sync.Mutex // guards below
	seen map[string]int
}

func (w *wild) saw(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[path]++
}

func (w *wild) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			break
		}
		w.saw(req.URL.Path)
		if !answerWildly(conn.(*net.TCPConn), req, rand.IntN(20)) {
			break
		}
	}
	rest, _ := io.ReadAll(in) // until the other side has closed, too
	for _, part := range bytes.Split(rest, []byte("POST "))[1:] {
		path, _, _ := strings.Cut(string(part), " ")
		w.saw(path)
	}
}

// answerWildly tells whether the next request may come.
func answerWildly(conn *net.TCPConn, req *http.Request, how int) bool {
	answer := answerOf(req.URL.Path, rand.IntN(6))
	if how > 1 {
		_, _ = io.Copy(io.Discard, req.Body)
	}
	part, pause := answer[:rand.IntN(len(answer))], time.Duration(rand.IntN(2000))*time.Microsecond
	switch how {
	case 0: // before it is read
		_, _ = io.WriteString(conn, answer)
		_, _ = io.Copy(io.Discard, req.Body)
		return true
	case 1: // and does not read it
		_, _ = io.WriteString(conn, answer)
		return conn.CloseWrite() != nil
	case 2: // in part
		_, _ = io.WriteString(conn, part)
		return conn.Close() != nil
	case 3: // in part, and resets
		_, _ = io.WriteString(conn, part)
		_ = conn.SetLinger(0)
		return conn.Close() != nil
	case 4: // not at all
		return conn.CloseWrite() != nil
	case 5: // twice
		answer += answerOf("/second", 0)
	case 6: // late
		time.Sleep(pause)
	case 7: // piece by piece
		for ; len(answer) > 100; answer = answer[100:] {
			_, _ = io.WriteString(conn, answer[:100])
		}
	case 8: // and closes
		_, _ = io.WriteString(conn, answer)
		return conn.Close() != nil
	case 9: // and resets soon
		_, _ = io.WriteString(conn, answer)
		time.Sleep(pause)
		_ = conn.SetLinger(0)
		return conn.Close() != nil
	}
	_, err := io.WriteString(conn, answer)
	return err == nil
}

func answerOf(path string, how int) string {
	switch how {
	case 0:
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n", len(path), path)
	case 1:
		path += strings.Repeat(" ", 20000)
		fallthrough
	case 2:
		return fmt.Sprintf("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path)
	case 3:
		z := packed(path)
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(z), z)
	default:
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path)
	}
}
