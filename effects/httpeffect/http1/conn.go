package http1

import (
	"bufio"
	"errors"
	"net"
	"syscall"
	"time"
)

// conn is a connection with one user at a time: a call, or the idle ones.
type conn struct {
	net.Conn
	address string
	in      *bufio.Reader   // of the call that uses it
	left    int64           // bytes that may still be read
	since   time.Time       // when it was last used
	raw     syscall.RawConn // nil where it cannot be looked at, and is not kept
	look    func(fd uintptr) bool
	quiet   bool   // what look saw
	cut     func() // ends what is read and written, now and later
}

func newConn(made net.Conn, address string) *conn {
	c := &conn{Conn: made, address: address}
	c.cut = func() { _ = made.SetDeadline(time.Unix(1, 0)) }
	if socket, is := made.(syscall.Conn); is {
		c.raw, _ = socket.SyscallConn()
	}
	c.look = func(fd uintptr) bool {
		c.quiet = nothingToRead(int(fd))
		return true // do not wait for something
	}
	return c
}

// silent tells whether a connection is as it was left: the other side has not closed
// it, nor said what nobody asked for.
func (c *conn) silent() bool {
	c.quiet = false
	return c.raw.Read(c.look) == nil && c.quiet
}

// nothingToRead tells whether a socket, which never blocks, is open and has nothing to
// say. A byte that is read is lost: its connection is not used again.
func nothingToRead(fd int) bool {
	var one [1]byte
	for {
		if _, err := syscall.Read(fd, one[:]); !errors.Is(err, syscall.EINTR) {
			return errors.Is(err, syscall.EAGAIN)
		}
	}
}

var errTooLong = errors.New("the headers of the answer are too long")

// Read reads no more than is left.
func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLong
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}
