package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// counting answers each request, and counts them.
func counting(t *testing.T) (s *raw, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	s = serveRaw(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			requests.Add(1)
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		}
	})
	return s, requests
}

// call makes a call and reads its answer.
func call(over http.RoundTripper, req *http.Request) error {
	resp, err := over.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && string(got) != "hello" {
		err = fmt.Errorf("the answer is %q", got)
	}
	return err
}

// together makes n calls at once.
func together(t *testing.T, n int, over http.RoundTripper, address string) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		req := request(t, http.MethodPost, address, "text")
		all.Go(func() {
			if err := call(over, req); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func (i *idle) connections() []*conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]*conn(nil), i.kept...)
}

// TestCallsOverConnectionsThatWereClosedAreMadeOverOthers: the other side has closed
// all that are kept, or said on them that it will.
func TestCallsOverConnectionsThatWereClosedAreMadeOverOthers(t *testing.T) {
	const n = 20
	for name, end := range map[string]func(net.Conn){
		"closed": func(c net.Conn) { _ = c.Close() },
		"reset":  func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() },
		"half":   func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() },
		"timed out": func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
		},
	} {
		s, requests := counting(t)
		over := open(t)
		for len(over.idle.connections()) < n {
			together(t, n, over, s.address)
		}
		kept, before, made := over.idle.connections(), requests.Load(), s.connections()
		for _, c := range s.all() {
			end(c)
		}
		for _, c := range kept { // each is dropped later, in whatever way it is looked at
			eventually(t, "the other side's end is here", func() bool { return arrived(c) })
		}
		together(t, n, over, s.address)
		if got := requests.Load() - before; got != n || s.connections() == made {
			t.Errorf("%s: %d requests for %d calls, %d connections more", name, got, n, s.connections()-made)
		}
	}
}

// TestWhatNobodyAskedForIsNoAnswer to the next request.
func TestWhatNobodyAskedForIsNoAnswer(t *testing.T) {
	const hello, more = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother"
	for name, said := range map[string]string{
		"behind a length": hello + more,
		"behind nothing":  "HTTP/1.1 100 Continue\r\n\r\n" + hello + "\r\n",
		"behind chunks":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + more,
	} {
		s := serveRaw(t, func(conn net.Conn) {
			in := bufio.NewReader(conn)
			for {
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				_, _ = io.WriteString(conn, said)
			}
		})
		over := open(t)
		for range 5 {
			if err := call(over, request(t, http.MethodGet, s.address, "")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := s.connections(); n != 5 {
			t.Errorf("%s: %d connections for five calls", name, n)
		}
	}
}

// arrived peeks: nothing of what the other side did is taken away.
func arrived(c *conn) bool {
	var n int
	var err error
	failed := c.raw.Read(func(fd uintptr) bool {
		n, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return true
	})
	return failed != nil || n > 0 || !errors.Is(err, syscall.EAGAIN)
}

// faulty is a connection whose nth write fails after some bytes.
type faulty struct {
	*net.TCPConn
	fail   int  // which
	taken  int  // bytes
	open   bool // it can still be read
	writes int
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.writes++; f.writes != f.fail {
		return f.TCPConn.Write(p)
	}
	n, _ := f.TCPConn.Write(p[:f.taken])
	if !f.open {
		_ = f.TCPConn.Close()
	}
	return n, syscall.EPIPE
}

// TestARequestGoesOutAgainOnlyWhereNothingWasTaken of it, and over another connection.
func TestARequestGoesOutAgainOnlyWhereNothingWasTaken(t *testing.T) {
	for name, tt := range map[string]struct {
		fail, taken int // of the first connection
		body        string
		calls       int
		unsent, ok  bool // the last call
	}{
		"a new one, nothing":        {1, 0, "text", 1, true, false},
		"a new one, a byte":         {1, 1, "text", 1, false, false},
		"a kept one, nothing":       {2, 0, "text", 2, false, true},
		"a kept one, a byte":        {2, 1, "text", 2, false, false},
		"a kept one, nothing large": {2, 0, strings.Repeat("x", 2*writtenAtOnce), 2, false, true},
		"a kept one, some of large": {2, 1, strings.Repeat("x", 2*writtenAtOnce), 2, false, false},
		"a new one, nothing large":  {1, 0, strings.Repeat("x", 2*writtenAtOnce), 1, true, false},
	} {
		s, requests := counting(t)
		dialled := 0
		over := dialling(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			made, err := new(net.Dialer).DialContext(ctx, network, address)
			if dialled++; err != nil || dialled > 1 {
				return made, err
			}
			return &faulty{TCPConn: made.(*net.TCPConn), fail: tt.fail, taken: tt.taken}, nil
		})
		if tt.calls == 2 {
			together(t, 1, over, s.address)
		}
		err := call(over, request(t, http.MethodPost, s.address, tt.body))
		if (err == nil) != tt.ok || errors.Is(err, ErrUnsent) != tt.unsent {
			t.Errorf("%s: %v", name, err)
		}
		want := int64(tt.calls)
		if !tt.ok {
			want--
		}
		if got := requests.Load(); got != want {
			t.Errorf("%s: the other side saw %d requests whole", name, got)
		}
	}
}

// TestWhoReadsNoMoreMayHaveAnswered: an answer stands, though the request was not taken whole.
func TestWhoReadsNoMoreMayHaveAnswered(t *testing.T) {
	s := serveRaw(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nhello")
		<-t.Context().Done()
	})
	over := dialling(t, func(ctx context.Context, network, address string) (net.Conn, error) {
		made, err := new(net.Dialer).DialContext(ctx, network, address)
		return &faulty{TCPConn: made.(*net.TCPConn), fail: 1, taken: 1, open: true}, err
	})
	if err := call(over, request(t, http.MethodPost, s.address, "text")); err != nil {
		t.Error(err)
	}
	if n := len(over.idle.connections()); n != 0 {
		t.Error("the connection is kept in the middle of a request")
	}
}

// TestAContextThatEndsEndsTheCall wherever it is, and says why; its connection is not
// used again.
func TestAContextThatEndsEndsTheCall(t *testing.T) {
	why := errors.New("the worker stops")
	for name, tt := range map[string]struct {
		body, said string
		headed     bool
	}{
		"before the answer":                {"text", "", false},
		"in the answer's head":             {"text", "HTTP/1.1 200 OK\r\nContent-", false},
		"in its body":                      {"text", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel", true},
		"in its chunks":                    {"text", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", true},
		"while a large request is written": {strings.Repeat("x", 64<<20), "", false}, // more than the kernel takes
	} {
		said := make(chan struct{})
		s := serveRaw(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1))
			_, _ = io.WriteString(conn, tt.said)
			close(said)
			<-t.Context().Done()
		})
		over := open(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-said
			if !tt.headed {
				cancel(why)
			}
		}()
		resp, err := over.RoundTrip(request(t, http.MethodPost, s.address, tt.body).WithContext(ctx))
		if tt.headed && err == nil {
			go cancel(why)
			_, err = io.ReadAll(resp.Body)
		}
		if !errors.Is(err, why) || errors.Is(err, ErrUnsent) {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(over.idle.connections()); n != 0 {
			t.Errorf("%s: %d connections are kept", name, n)
		}
	}
}

// lastMoment is a connection whose call's context ends with the answer's last byte.
type lastMoment struct {
	*net.TCPConn
	cancel context.CancelFunc
	cut    chan struct{}
}

func (l *lastMoment) Read(p []byte) (int, error) {
	n, err := l.TCPConn.Read(p)
	l.cancel()
	<-l.cut
	return n, err
}

func (l *lastMoment) SetDeadline(at time.Time) error {
	defer close(l.cut)
	return l.TCPConn.SetDeadline(at)
}

// TestAConnectionThatWasCutIsNotKept, be the answer whole.
func TestAConnectionThatWasCutIsNotKept(t *testing.T) {
	s, _ := counting(t)
	ctx, cancel := context.WithCancel(t.Context())
	over := dialling(t, func(ctx context.Context, network, address string) (net.Conn, error) {
		made, err := new(net.Dialer).DialContext(ctx, network, address)
		return &lastMoment{made.(*net.TCPConn), cancel, make(chan struct{})}, err
	})
	if err := call(over, request(t, http.MethodPost, s.address, "text").WithContext(ctx)); err != nil {
		t.Error(err)
	}
	if n := len(over.idle.connections()); n != 0 {
		t.Error("it is kept")
	}
}

// TestAContextThatHasEndedSendsNothing, nor does one that ends while it is dialled.
func TestAContextThatHasEndedSendsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	over := dialling(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		<-ctx.Done()
		return nil, errors.New("dial: operation was canceled")
	})
	for range 2 {
		err := call(over, request(t, http.MethodPost, "pay.test", "text").WithContext(ctx))
		if !errors.Is(err, ErrUnsent) || !errors.Is(err, context.Canceled) || err.Error() != "context canceled" {
			t.Errorf("%v", err)
		}
	}
}

// TestAContextThatHasEndedSendsNothingOverAKeptConnection, which stays for others.
func TestAContextThatHasEndedSendsNothingOverAKeptConnection(t *testing.T) {
	s, requests := counting(t)
	over := open(t)
	together(t, 1, over, s.address)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		err := call(over, request(t, http.MethodPost, s.address, "text").WithContext(ctx))
		if !errors.Is(err, ErrUnsent) || !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	together(t, 1, over, s.address)
	if n, conns := requests.Load(), s.connections(); n != 2 || conns != 1 {
		t.Errorf("%d requests over %d connections", n, conns)
	}
}

// TestADeadlineEndsTheCall, and reads as such.
func TestADeadlineEndsTheCall(t *testing.T) {
	var came atomic.Int64
	s := serveRaw(t, func(conn net.Conn) {
		n, _ := conn.Read(make([]byte, 1))
		came.Add(int64(n))
		_, _ = io.Copy(io.Discard, conn)
	})
	ended := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return call(open(t), request(t, http.MethodPost, s.address, "text").WithContext(ctx))
	}
	within := 50 * time.Millisecond
	err := ended(within)
	for errors.Is(err, ErrUnsent) && came.Load() == 0 && within < patience { // a busy machine was late
		within *= 2
		err = ended(within)
	}
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnsent) {
		t.Errorf("%v", err)
	}
}

// TestAConnectionOutlivesTheContextOfItsCall: it is kept, and the next call is not cut.
func TestAConnectionOutlivesTheContextOfItsCall(t *testing.T) {
	s, _ := counting(t)
	over := open(t)
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		if err := call(over, request(t, http.MethodPost, s.address, "text").WithContext(ctx)); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	if n := s.connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestCallsThatAreCutHarmNoOthers: contexts end at any moment, also in that in which
// the connection would be given back.
func TestCallsThatAreCutHarmNoOthers(t *testing.T) {
	s, _ := counting(t)
	over := open(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 300 {
				req := request(t, http.MethodPost, s.address, "text")
				if i%2 == 0 {
					ctx, cancel := context.WithTimeout(req.Context(), time.Duration(n)*time.Microsecond)
					_ = call(over, req.WithContext(ctx))
					cancel()
				} else if err := call(over, req); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// TestAnAnswerMayComeBeforeTheRequestIsWritten: who has heard enough says so, and
// reads no more.
func TestAnAnswerMayComeBeforeTheRequestIsWritten(t *testing.T) {
	other, _ := counting(t)
	for name, length := range map[string]int{"small": 100, "large": 64 << 20} {
		for _, closes := range []bool{false, true} {
			s := serveRaw(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 1))
				_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nhello")
				if closes {
					_ = conn.(*net.TCPConn).CloseWrite()
				}
				<-t.Context().Done()
			})
			over := open(t)
			resp, err := over.RoundTrip(request(t, http.MethodPost, s.address, strings.Repeat("x", length)))
			if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Fatalf("%s: %v", name, err)
			}
			together(t, 4, over, other.address) // its bytes are not those that are still written
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "hello" {
				t.Errorf("%s: %q %v", name, got, err)
			}
			kept := slices.ContainsFunc(over.idle.connections(), func(c *conn) bool { return c.address == s.address })
			if name == "large" && kept {
				t.Error("the connection is kept in the middle of a request")
			}
		}
	}
}

// TestWhatIsStillWrittenIsNotOverwritten by the calls that come meanwhile.
func TestWhatIsStillWrittenIsNotOverwritten(t *testing.T) {
	const length = 16 << 20                          // more than the kernel takes
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties pools
	goOn, others := make(chan struct{}), make(chan int, 1)
	s := serveRaw(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nh")
		<-goOn
		got, _ := io.ReadAll(req.Body)
		others <- length - bytes.Count(got, []byte("x"))
		_, _ = io.WriteString(conn, "ello")
	})
	other, _ := counting(t)
	over := open(t)
	resp, err := over.RoundTrip(request(t, http.MethodPost, s.address, strings.Repeat("x", length)))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // as long: the beginning is with the kernel already
		if err := call(over, request(t, http.MethodPost, other.address, strings.Repeat("y", length))); err != nil {
			t.Error(err)
		}
	}
	close(goOn)
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
	if n := <-others; n != 0 {
		t.Errorf("%d bytes are not those of the request", n)
	}
}

// TestARequestThatSaysItIsTheLastIsTheLast of its connection, be it that the other side forgets.
func TestARequestThatSaysItIsTheLastIsTheLast(t *testing.T) {
	s, _ := counting(t)
	over := open(t)
	req := request(t, http.MethodPost, s.address, "text")
	req.Close = true
	if err := call(over, req); err != nil {
		t.Error(err)
	}
	if n := len(over.idle.connections()); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}

// TestALargeRequestWhoseServerClosesHasAnAnswerOrMayHaveBeenTaken. The server resets
// the connection over what it did not read, which may overtake its answer.
func TestALargeRequestWhoseServerClosesHasAnAnswerOrMayHaveBeenTaken(t *testing.T) {
	s := serveRaw(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")
	})
	over := open(t)
	for range 20 {
		if err := call(over, request(t, http.MethodPost, s.address, strings.Repeat("x", 8<<20))); errors.Is(err, ErrUnsent) {
			t.Error(err)
		}
	}
}

// TestLargeRequestsAreWrittenWhole, and those that come after them.
func TestLargeRequestsAreWrittenWhole(t *testing.T) {
	var sizes sync.Map
	s := serveRaw(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			n, _ := io.Copy(io.Discard, req.Body)
			sizes.Store(n, true)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		}
	})
	over := open(t)
	for _, size := range []int{0, 1, writtenAtOnce - 1, writtenAtOnce, 2 * writtenAtOnce, 1 << 20, 3} {
		if err := call(over, request(t, http.MethodPost, s.address, strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
		if _, seen := sizes.Load(int64(size)); !seen {
			t.Errorf("no body of %d bytes", size)
		}
	}
}

// TestABodyThatIsNotReadToItsEndClosesItsConnection.
func TestABodyThatIsNotReadToItsEndClosesItsConnection(t *testing.T) {
	s, _ := counting(t)
	over := open(t)
	resp, err := over.RoundTrip(request(t, http.MethodPost, s.address, "text"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := resp.Body.Read(make([]byte, 2)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error("closed twice:", err)
	}
	if n, err := resp.Body.Read(make([]byte, 2)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Error(n, err)
	}
	if n := len(over.idle.connections()); n != 0 {
		t.Errorf("%d are kept", n)
	}
}

// TestHeadersThatAreTooLongAreSaidToBe.
func TestHeadersThatAreTooLongAreSaidToBe(t *testing.T) {
	for _, name := range []string{"headers too long", "go on for ever", "hints for ever"} {
		s := serveRaw(t, func(conn net.Conn) { say(conn, answers()[name]) })
		err := call(open(t), request(t, http.MethodGet, s.address, ""))
		if !errors.Is(err, errTooLong) || errors.Is(err, ErrUnsent) || err.Error() != "the headers of the answer are too long: more than 65536 bytes" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
