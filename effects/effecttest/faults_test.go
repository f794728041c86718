package effecttest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// echo answers each line with itself until the test ends, and counts them.
func echo(t *testing.T) (string, *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	heard := new(atomic.Int64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn, heard)
		}
	}()
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), heard
}

func answer(conn net.Conn, heard *atomic.Int64) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		heard.Add(1)
		if _, err := conn.Write(append(lines.Bytes(), '\n')); err != nil {
			return
		}
	}
}

// ask sends a line on a new connection and reads until there is an answer, an end or no patience.
func ask(t *testing.T, address string, patience time.Duration) (string, error) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func TestFaults(t *testing.T) {
	server, heard := echo(t)
	f := NewFaults(t, server)
	const short, long = 50 * time.Millisecond, 10 * time.Second
	for _, tt := range []struct {
		name     string
		fault    func()
		patience time.Duration
		answer   string
		err      error
		heard    bool
	}{
		{"none", f.None, long, "hello\n", nil, true},
		{"slow answers", func() { f.SlowAnswers(time.Second) }, short, "", os.ErrDeadlineExceeded, true},
		{"no requests", f.NoRequests, short, "", os.ErrDeadlineExceeded, false},
		{"no answers", f.NoAnswers, short, "", os.ErrDeadlineExceeded, true},
		{"reset requests", f.ResetRequests, long, "", syscall.ECONNRESET, false},
		{"reset answers", f.ResetAnswers, long, "", syscall.ECONNRESET, true},
		{"cut answers", func() { f.CutAnswers(3) }, long, "hel", io.EOF, true},
		{"down", f.Down, long, "", syscall.ECONNREFUSED, false},
		{"up", func() { f.Up(); f.None() }, long, "hello\n", nil, true},
	} {
		before := heard.Load()
		tt.fault()
		got, err := ask(t, f.Address(), tt.patience)
		if got != tt.answer || !errors.Is(err, tt.err) {
			t.Errorf("%s: %q %v, want %q %v", tt.name, got, err, tt.answer, tt.err)
		}
		for deadline := time.Now().Add(long); tt.heard && heard.Load() == before && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if (heard.Load() > before) != tt.heard {
			t.Errorf("%s: the server heard %d, want any: %t", tt.name, heard.Load()-before, tt.heard)
		}
	}
}
