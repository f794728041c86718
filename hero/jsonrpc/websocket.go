package jsonrpc

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"
)

const (
	// socketCalls bounds the concurrent messages of one WebSocket. The server reads the next
	// one when it has answered one of them.
	socketCalls = 64
	// pingEvery is the interval of pings, which detect a client that is gone.
	pingEvery = 30 * time.Second
	// writeWait bounds the time in which a client takes an answer.
	writeWait = 30 * time.Second
)

// WebSocket returns the handler of the same methods over WebSocket. A message is one request
// or one batch. Answers come as they are ready, in any order. Web pages of other hosts
// are refused.
func (s *Server) WebSocket() http.Handler { return http.HandlerFunc(s.serveSocket) }

// Close cancels the calls of the WebSockets, closes them and waits for their end.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.stopped() {
		close(s.stop)
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// enter counts a WebSocket, for which Close waits. It returns false after Close.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped() {
		return false
	}
	s.serving.Add(1)
	return true
}

func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	ctx, denied := s.authenticated(r)
	if denied != nil {
		s.deny(w, denied)
		return
	}
	release, ok := take(ctx, s.sockets, busyWait)
	if !ok {
		http.Error(w, "too many WebSockets, try again later", http.StatusServiceUnavailable)
		return
	}
	defer release()
	if !s.enter() {
		http.Error(w, "the server stops", http.StatusServiceUnavailable)
		return
	}
	defer s.serving.Done()
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept answered the request
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(s.options.MaxBody)
	s.options.Received(ctx)
	s.serve(ctx, c)
}

func (s *Server) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// serve reads messages until the client is gone or the server stops, and waits for the
// running calls.
func (s *Server) serve(ctx context.Context, c *websocket.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	working.Go(func() { s.attend(ctx, c, cancel) })
	slots := make(chan struct{}, socketCalls)
	for {
		room := s.roomFor(ctx)
		raw, err := s.message(ctx, c, room)
		if err != nil {
			room.release()
			switch {
			case errors.Is(err, errNoRoom):
				_ = c.Close(websocket.StatusTryAgainLater, err.Error())
			case errors.Is(err, websocket.ErrMessageTooBig), errors.Is(err, errTooBig):
				s.options.Log.Warn("a WebSocket was closed: its message is too big", zap.Int64("limit", s.options.MaxBody))
			}
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			room.release()
			return
		}
		working.Go(func() {
			defer func() { <-slots }()
			defer room.release()
			s.answer(ctx, c, raw)
		})
	}
}

// message reads the next message and holds room for it. From its first byte on a message
// must arrive in bodyWait.
func (s *Server) message(ctx context.Context, c *websocket.Conn, room *held) ([]byte, error) {
	_, r, err := c.Reader(ctx)
	if err != nil {
		return nil, err
	}
	late := time.AfterFunc(bodyWait, func() { _ = c.CloseNow() })
	defer late.Stop()
	return room.read(ctx, r, s.options.MaxBody+1) // the connection enforces MaxBody
}

func (s *Server) answer(ctx context.Context, c *websocket.Conn, raw []byte) {
	out := s.Handle(ctx, raw)
	if out == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	_ = c.Write(ctx, websocket.MessageText, out) // a failed write ends the reader, too
}

// attend pings the client, and ends the WebSocket when it is gone or the server stops.
func (s *Server) attend(ctx context.Context, c *websocket.Conn, cancel func()) {
	defer cancel()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.stop:
			_ = c.Close(websocket.StatusGoingAway, "the server stops")
			return
		case <-tick.C:
			ping, done := context.WithTimeout(ctx, pingEvery)
			err := c.Ping(ping)
			done()
			if err != nil {
				return
			}
		}
	}
}
