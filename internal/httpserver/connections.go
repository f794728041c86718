package httpserver

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// Why a connection was closed before its client or the HTTP server closed it.
const (
	// closedFull: all connections were taken, and this one had waited longest.
	closedFull = "full"
	// closedAnonymous: the anonymous connections were all taken.
	closedAnonymous = "anonymous_full"
	// closedWait: it was anonymous for too long.
	closedWait = "anonymous_wait"
)

// connections is a listener that always has room for the next client. A
// connection is anonymous until a request on it is authenticated, and again when
// that request has been answered and the next one begins. Anonymous connections
// have a bound and a deadline of their own. Where a bound is reached, the
// connection whose last step is oldest is closed, never one that works for a
// caller who is known.
type connections struct {
	net.Listener
	most, anonymous int
	wait            time.Duration
	closing         func(why string)

	mu        sync.Mutex // guards what follows, and the fields of conn
	open      int
	strangers *list.List // the anonymous ones, the oldest step first
	idle      *list.List // known callers between two requests, the oldest first
	sweep     *time.Timer
	ended     bool
	room      chan struct{} // told, without waiting, when a connection can be had
	end       chan struct{} // closed by Close
}

func bound(l net.Listener, o Options, closing func(why string)) *connections {
	return &connections{
		Listener: l, most: o.Connections, anonymous: o.Anonymous, wait: o.AnonymousWait, closing: closing,
		strangers: list.New(), idle: list.New(), room: make(chan struct{}, 1), end: make(chan struct{}),
	}
}

// conn is one connection. Its fields belong to the connections' lock.
type conn struct {
	net.Conn
	owner *connections

	requests int  // that are being answered
	known    int  // of them, those that were authenticated
	familiar bool // the last request was authenticated
	active   bool // since the first byte of a request, until its answer has gone out
	list     *list.List
	place    *list.Element
	since    time.Time // of the last step
	gone     bool
}

// Accept returns the next connection, and closes another one for it where all
// are taken.
func (l *connections) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, owner: l}
	for !l.admit(c) {
		select { // every connection works for a caller who is known
		case <-l.room:
		case <-l.end:
			_ = raw.Close()
			return nil, net.ErrClosed
		}
	}
	return c, nil
}

// admit counts the connection in; false where there is none to close for it.
func (l *connections) admit(c *conn) bool {
	l.mu.Lock()
	victim, why := l.victim()
	if victim != nil {
		l.forget(victim)
	}
	fits := l.open < l.most
	if fits {
		l.open++
		l.settle(c)
	}
	l.mu.Unlock()
	if victim != nil {
		l.cut(victim, why)
	}
	return fits
}

// victim is the connection to close before another one comes in, if any. It is
// called with the lock held.
func (l *connections) victim() (*conn, string) {
	switch {
	case l.strangers.Len() >= l.anonymous:
		return l.strangers.Front().Value.(*conn), closedAnonymous
	case l.open < l.most:
		return nil, ""
	case l.strangers.Len() > 0:
		return l.strangers.Front().Value.(*conn), closedFull
	case l.idle.Len() > 0:
		return l.idle.Front().Value.(*conn), closedFull
	}
	return nil, ""
}

// cut closes a connection from our side.
func (l *connections) cut(c *conn, why string) {
	l.closing(why)
	_ = c.Conn.Close() // whatever comes of it, nobody uses it any more
}

// settle puts the connection at the end of the list that it belongs to. It is
// called with the lock held.
func (l *connections) settle(c *conn) {
	if c.list != nil {
		c.list.Remove(c.place)
		c.list = nil
	}
	switch {
	case c.gone || c.known > 0:
		return
	case c.familiar && c.requests == 0 && c.active:
		return // the handler has ended, and its answer has not gone out
	case c.familiar && c.requests == 0:
		c.list = l.idle
	default:
		c.list = l.strangers
	}
	c.since = time.Now()
	c.place = c.list.PushBack(c)
	if c.list == l.strangers && l.sweep == nil && !l.ended {
		l.sweep = time.AfterFunc(l.wait, l.expire)
	}
	l.tell()
}

// tell wakes an Accept that waits for room. It is called with the lock held.
func (l *connections) tell() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// forget takes the connection off the books. It is called with the lock held.
func (l *connections) forget(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	l.open--
	l.settle(c)
	l.tell()
}

// expire closes the connections that were anonymous for too long.
func (l *connections) expire() {
	l.mu.Lock()
	var late []*conn
	l.sweep = nil
	for l.strangers.Len() > 0 && !l.ended {
		c := l.strangers.Front().Value.(*conn)
		if left := l.wait - time.Since(c.since); left > 0 {
			l.sweep = time.AfterFunc(left, l.expire)
			break
		}
		l.forget(c)
		late = append(late, c)
	}
	l.mu.Unlock()
	for _, c := range late {
		l.cut(c, closedWait)
	}
}

// count is how many are open, and how many of them are anonymous.
func (l *connections) count() (open, anonymous int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.strangers.Len()
}

// Close ends Accept, and the look at the anonymous connections.
func (l *connections) Close() error {
	l.mu.Lock()
	if !l.ended {
		l.ended = true
		close(l.end)
		if l.sweep != nil {
			l.sweep.Stop()
		}
	}
	l.mu.Unlock()
	return l.Listener.Close()
}

// Close closes the connection and makes room for the next.
func (c *conn) Close() error {
	c.owner.mu.Lock()
	c.owner.forget(c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// visit is one request on a connection.
type visit struct {
	conn  *conn
	known bool // guarded by the connections' lock
}

type (
	connKey  struct{}
	visitKey struct{}
)

// connContext leaves the connection where its requests find it.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, underTLS(c))
}

func underTLS(c net.Conn) net.Conn {
	if over, ok := c.(*tls.Conn); ok {
		return over.NetConn()
	}
	return c
}

// connState hears from the HTTP server when an answer has gone out: a handler ends
// before that.
func connState(raw net.Conn, state http.ConnState) {
	c, ok := underTLS(raw).(*conn)
	if !ok {
		return
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	switch state {
	case http.StateActive:
		c.active = true
	case http.StateIdle:
		c.active = false
		c.owner.settle(c)
	}
}

// counted has each request counted for its connection.
func counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connKey{}).(*conn)
		if !ok { // under test, without a connection
			next.ServeHTTP(w, r)
			return
		}
		v := &visit{conn: c}
		v.begin()
		defer v.end()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
	})
}

func (v *visit) begin() {
	v.conn.owner.mu.Lock()
	defer v.conn.owner.mu.Unlock()
	v.conn.requests++
	v.conn.owner.settle(v.conn)
}

func (v *visit) end() {
	v.conn.owner.mu.Lock()
	defer v.conn.owner.mu.Unlock()
	v.conn.requests--
	v.conn.familiar = v.known
	if v.known {
		v.conn.known--
	}
	v.conn.owner.settle(v.conn)
}

// Authenticated says that the server knows who makes the request of the context.
// Until the request is answered its connection is not closed for another one. It
// does nothing where the context is of no request, and may be called again.
func Authenticated(ctx context.Context) {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return
	}
	v.conn.owner.mu.Lock()
	defer v.conn.owner.mu.Unlock()
	if v.known {
		return
	}
	v.known = true
	v.conn.known++
	v.conn.owner.settle(v.conn)
}
