package http1

import (
	"bufio"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// readBuffer is the size of a connection's read buffer, as in net/http. A trailer must fit it.
const readBuffer = 4 << 10

// conn is a connection. One call uses it, or it is idle.
type conn struct {
	net.Conn
	address string
	in      *bufio.Reader   // reads from the conn itself
	left    int64           // bytes that may still be read
	since   time.Time       // when it became idle
	raw     syscall.RawConn // nil: it cannot be probed, so it is not kept
	probe   func(fd uintptr) bool
	quiet   bool   // what probe found
	cut     func() // ends reads and writes, now and later
}

func newConn(made net.Conn, address string) *conn {
	c := &conn{Conn: made, address: address}
	c.in = bufio.NewReaderSize(c, readBuffer)
	c.cut = func() { _ = made.SetDeadline(time.Unix(1, 0)) }
	if socket, is := made.(syscall.Conn); is {
		c.raw, _ = socket.SyscallConn()
	}
	c.probe = func(fd uintptr) bool {
		c.quiet = nothingToRead(int(fd))
		return true // do not wait until there is something
	}
	return c
}

// silent reports whether the server has neither closed an idle connection nor sent anything on
// it.
func (c *conn) silent() bool {
	c.quiet = false
	return c.raw.Read(c.probe) == nil && c.quiet
}

// nothingToRead reports whether a non-blocking socket is open and has no bytes. It may lose a
// byte, because a connection that has one is not used again.
func nothingToRead(fd int) bool {
	var one [1]byte
	for {
		if _, err := syscall.Read(fd, one[:]); !errors.Is(err, syscall.EINTR) {
			return errors.Is(err, syscall.EAGAIN)
		}
	}
}

var errTooLong = errors.New("the headers of the answer are too long")

// Read reads at most c.left bytes.
func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLong
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// idle holds the idle connections. A timer closes those that were idle for too long. At the
// bound, the one that was used longest ago is closed for a new one.
type idle struct {
	most    int
	longest time.Duration

	mu     sync.Mutex // guards below
	kept   []*conn    // by last use, the latest at the end
	closed bool       // connections that come back are closed, until the next take
	timer  *time.Timer
	armed  bool // the timer runs
}

// take removes and returns the connection to an address that was used last, because the server
// is least likely to have closed it. It returns nil if there is none.
func (i *idle) take(address string) *conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = false
	for at, c := range slices.Backward(i.kept) {
		if c.address == address {
			i.kept = slices.Delete(i.kept, at, at+1)
			return c
		}
	}
	return nil
}

// put adds a connection. It returns false if the connection may not be kept.
func (i *idle) put(c *conn) bool {
	c.since = time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || i.most <= 0 || i.longest <= 0 {
		return false
	}
	if len(i.kept) == i.most {
		i.drop(1)
	}
	i.kept = append(i.kept, c)
	if !i.armed {
		i.arm(i.longest)
	}
	return true
}

// expired reports whether a connection was idle for too long by the wall clock: timers stand
// still while the machine sleeps.
func (i *idle) expired(c *conn) bool {
	return time.Now().Round(0).Sub(c.since.Round(0)) > i.longest
}

// arm runs expire after a delay. The caller holds the mutex.
func (i *idle) arm(in time.Duration) {
	i.armed = true
	if i.timer == nil {
		i.timer = time.AfterFunc(in, i.expire)
		return
	}
	i.timer.Reset(in)
}

// expire closes the connections that were idle for too long.
func (i *idle) expire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	young := slices.IndexFunc(i.kept, func(c *conn) bool { return now.Sub(c.since) < i.longest })
	if young < 0 {
		i.drop(len(i.kept))
		i.armed = false
		return
	}
	i.drop(young)
	i.arm(i.longest - now.Sub(i.kept[0].since))
}

// drop closes the n connections that were used longest ago. The caller holds the mutex.
func (i *idle) drop(n int) {
	for _, c := range i.kept[:n] {
		_ = c.Close()
	}
	i.kept = slices.Delete(i.kept, 0, n)
}

func (i *idle) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.drop(len(i.kept))
	i.closed = true
	if i.timer != nil {
		i.timer.Stop()
	}
	i.armed = false
}
