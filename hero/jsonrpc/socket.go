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

// ErrClosed means that a WebSocket has ended. The calls that waited may have been made or
// not.
var ErrClosed = errors.New("the WebSocket is closed")

// Socket calls a server over one WebSocket. Its methods may be called concurrently. It does
// not reconnect.
type Socket struct {
	options ClientOptions
	conn    *websocket.Conn
	done    chan struct{} // closed when reading has ended

	mu      sync.Mutex // guards the fields below
	last    uint64
	waiting map[string]chan []byte
	err     error // why reading ended
}

// Dial connects to a ws or wss URL. The caller must Close the Socket.
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

// Close closes the WebSocket and waits for the end of its reader.
func (s *Socket) Close() {
	_ = s.conn.Close(websocket.StatusNormalClosure, "")
	<-s.done
}

// Call calls a method as Client.Call does.
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

// read passes each answer to its call, until the WebSocket ends.
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

// hand passes an answer to its call. It drops a late answer, or a second one.
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
