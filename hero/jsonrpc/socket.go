package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/coder/websocket"
)

// ErrClosed says that a WebSocket has ended: whether the calls that waited were
// made nobody knows.
var ErrClosed = errors.New("the WebSocket is closed")

// Socket calls a server over one WebSocket. It may be used concurrently. It does
// not connect again by itself.
type Socket struct {
	options ClientOptions
	conn    *websocket.Conn
	done    chan struct{} // closed when reading has ended

	mu      sync.Mutex // guards what follows
	last    uint64
	waiting map[string]chan []byte
	err     error // why reading ended
}

// Dial connects to a ws or wss URL. Close ends it.
func Dial(ctx context.Context, url string, o ClientOptions) (*Socket, error) {
	o.validate()
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	header := o.header()
	header.Del("Content-Type")
	conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: o.HTTP, HTTPHeader: header})
	if err != nil {
		return nil, fmt.Errorf("open a WebSocket: %w", err)
	}
	conn.SetReadLimit(o.MaxBody)
	s := &Socket{options: o, conn: conn, done: make(chan struct{}), waiting: map[string]chan []byte{}}
	go s.read()
	return s, nil
}

// Close ends the WebSocket and waits until nothing is read any more.
func (s *Socket) Close() {
	_ = s.conn.Close(websocket.StatusNormalClosure, "")
	<-s.done
}

// Call is as Client's.
func (s *Socket) Call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := s.options.bounded(ctx)
	defer cancel()
	id, answered := s.expect()
	defer s.forget(id)
	raw, err := Request(id, method, params)
	if err != nil {
		return err
	}
	if err := s.conn.Write(ctx, websocket.MessageText, raw); err != nil {
		return fmt.Errorf("call %s: %w: %w", method, ErrClosed, err)
	}
	select {
	case answer := <-answered:
		if err := ReadResponse(answer, id, result); err != nil {
			return fmt.Errorf("call %s: %w", method, err)
		}
		return nil
	case <-s.done:
		return fmt.Errorf("call %s: %w: %w", method, ErrClosed, s.reason())
	case <-ctx.Done():
		return fmt.Errorf("call %s: %w", method, ctx.Err())
	}
}

func (s *Socket) expect() (id string, answered chan []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	id, answered = strconv.FormatUint(s.last, 10), make(chan []byte, 1)
	s.waiting[id] = answered
	return id, answered
}

func (s *Socket) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
}

func (s *Socket) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// read hands each answer to the call that waits for it, until the end.
func (s *Socket) read() {
	defer close(s.done)
	for {
		_, raw, err := s.conn.Read(context.Background())
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			return
		}
		s.hand(raw)
	}
}

// hand drops an answer that no call waits for: a late one, or a second one.
func (s *Socket) hand(raw []byte) {
	var r struct {
		ID any `json:"id"`
	}
	if json.Unmarshal(raw, &r) != nil {
		return
	}
	id, _ := r.ID.(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	if answered := s.waiting[id]; answered != nil {
		delete(s.waiting, id)
		answered <- raw
	}
}
