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

// The reasons for which the listener closes a connection.
const (
	// closedFull: the server was full, and this connection had been idle longest.
	closedFull = "full"
	// closedAnonymous: the bound of anonymous connections was reached.
	closedAnonymous = "anonymous_full"
	// closedWait: the connection was anonymous for longer than AnonymousWait.
	closedWait = "anonymous_wait"
)

// connections is a listener that makes room for new clients. A connection is anonymous
// until the server authenticates a request on it. It is anonymous again when the next
// request begins. Anonymous connections have a bound and a deadline of their own. At a
// bound the listener closes the connection whose state has changed least recently, but
// never one that works for an authenticated caller.
type connections struct {
	net.Listener
	most, anonymous int
	wait            time.Duration
	closing         func(why string)

	mu        sync.Mutex // guards the fields below, and the fields of conn
	open      int
	strangers *list.List // anonymous connections, the oldest change first
	idle      *list.List // authenticated connections between two requests, the oldest first
	sweep     *time.Timer
	ended     bool
	room      chan struct{} // signals that a connection can be closed or was closed
	end       chan struct{} // closed by Close
}

func bound(l net.Listener, o Options, closing func(why string)) *connections {
	return &connections{
		Listener: l, most: o.Connections, anonymous: o.Anonymous, wait: o.AnonymousWait, closing: closing,
		strangers: list.New(), idle: list.New(), room: make(chan struct{}, 1), end: make(chan struct{}),
	}
}

// conn is one connection. connections.mu guards its fields.
type conn struct {
	net.Conn
	owner *connections

	requests int  // in flight
	known    int  // authenticated requests in flight
	familiar bool // the last request was authenticated
	active   bool // from the first byte of a request until the end of its answer
	list     *list.List
	place    *list.Element
	since    time.Time // last change of state
	gone     bool
}

// Accept returns the next connection. If the server is full, it closes another
// connection for it.
func (l *connections) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, owner: l}
	for !l.admit(c) {
		select { // every connection works for an authenticated caller
		case <-l.room:
		case <-l.end:
			_ = raw.Close()
			return nil, net.ErrClosed
		}
	}
	return c, nil
}

// admit adds the connection. It returns false if the server is full and no connection can
// be closed.
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

// victim chooses the connection to close for a new one; nil if none is needed or none
// can be closed. The caller holds mu.
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

// cut closes a connection and counts the reason.
func (l *connections) cut(c *conn, why string) {
	l.closing(why)
	_ = c.Conn.Close() // the connection is already removed
}

// settle appends the connection to the list of its state. The caller holds mu.
func (l *connections) settle(c *conn) {
	if c.list != nil {
		c.list.Remove(c.place)
		c.list = nil
	}
	switch {
	case c.gone || c.known > 0:
		return
	case c.familiar && c.requests == 0 && c.active:
		return // the handler has returned, but the answer is not written yet
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

// tell wakes an Accept that waits for room. The caller holds mu.
func (l *connections) tell() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// forget removes the connection. The caller holds mu.
func (l *connections) forget(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	l.open--
	l.settle(c)
	l.tell()
}

// expire closes the connections that were anonymous for longer than wait.
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

// count returns the number of open connections and of anonymous ones.
func (l *connections) count() (open, anonymous int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.strangers.Len()
}

// Close ends Accept and the timer of the anonymous connections.
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
	known bool // guarded by connections.mu
}

type (
	connKey  struct{}
	visitKey struct{}
)

// connContext puts the connection into the context of its requests.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, underTLS(c))
}

func underTLS(c net.Conn) net.Conn {
	if over, ok := c.(*tls.Conn); ok {
		return over.NetConn()
	}
	return c
}

// connState learns from net/http when an answer is written, because the handler returns
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

// counted counts each request for its connection.
func counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connKey{}).(*conn)
		if !ok { // a test without a connection
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

// Authenticated marks the request of the context as authenticated. Until its answer is
// written, the server does not close its connection for another one. It does nothing
// without a request in the context, and may be called repeatedly.
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
