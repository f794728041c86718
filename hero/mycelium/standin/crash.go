package standin

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
)

var (
	errCut  = errors.New("the answer is not to arrive")
	errDown = errors.New("the node is down")
)

// cutKey is where a request's context has what cuts its connection.
type cutKey struct{}

// cut breaks the connection of a request where the error stands for that.
func cut(ctx context.Context, err error) {
	if errors.Is(err, errCut) || errors.Is(err, errDown) {
		ctx.Value(cutKey{}).(*atomic.Bool).Store(true)
	}
}

// crashing breaks the connections to a node that is down, and those of answers
// that are not to arrive.
func (n *Node) crashing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.isDown() {
			panic(http.ErrAbortHandler)
		}
		w2 := &cutting{ResponseWriter: w}
		h.ServeHTTP(w2, r.WithContext(context.WithValue(r.Context(), cutKey{}, &w2.cut)))
	})
}

func (n *Node) isDown() bool {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	return n.down
}

// cutting is a ResponseWriter whose connection can be cut before the answer.
type cutting struct {
	http.ResponseWriter
	cut atomic.Bool
}

func (c *cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutting) WriteHeader(status int) {
	if c.cut.Load() {
		panic(http.ErrAbortHandler)
	}
	c.ResponseWriter.WriteHeader(status)
}
