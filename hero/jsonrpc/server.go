// Package jsonrpc implements JSON-RPC 2.0 over HTTP and WebSocket, server and client. A
// method is defined once, by Go types for its parameters and its result. They decide how
// the shapes of parameters that clients send are decoded and checked, and make the
// OpenRPC document that rpc.discover answers.
//
// It promises that every request gets an answer with a code and a detail, that a panic of
// a handler ends only its own call, and that the size and number of concurrent requests
// are bounded. It has no subscriptions.
package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
)

const (
	// defaultMaxBody is the bound of jsonrpsee, which the original uses.
	defaultMaxBody = 10 << 20
	// defaultMaxBatch is more than a client needs.
	defaultMaxBatch = 1000
	// defaultMaxConcurrent bounds the concurrent HTTP requests; maxBodies bounds their
	// bytes.
	defaultMaxConcurrent = 256
)

// ServerOptions configure a server. The zero value works.
type ServerOptions struct {
	Log *zap.Logger
	// MaxBody bounds one message, in bytes; 10 MiB by default. When the answer to a batch
	// exceeds it the server refuses the remaining calls.
	MaxBody int64
	// MaxBatch bounds the calls in one batch; 1000 by default.
	MaxBatch int
	// MaxConcurrent bounds the concurrent HTTP requests, and the open WebSockets; 256 by
	// default. Further ones wait for a moment and then get 503.
	MaxConcurrent int
	// Auth checks the headers of each HTTP request and WebSocket before the body is read.
	// Handlers get the context that it returns; with Anonymous they authenticate the
	// caller. Its error refuses the request with 401.
	Auth func(ctx context.Context, r *http.Request) (context.Context, error)
	// Received is called for each HTTP request that arrived whole, before its calls, and for
	// each open WebSocket, with the context of the calls. It may be called concurrently.
	Received func(ctx context.Context)
	// Observe is called after each call and notification. The method is "" if the server
	// has none of the name. It may be called concurrently.
	Observe func(method string, took time.Duration, err error)
}

func (o *ServerOptions) validate() error {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Observe == nil {
		o.Observe = func(string, time.Duration, error) {}
	}
	if o.Received == nil {
		o.Received = func(context.Context) {}
	}
	if o.MaxBody < 0 || o.MaxBatch < 0 || o.MaxConcurrent < 0 {
		return errors.New("the bounds of a JSON-RPC server are not negative")
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = defaultMaxBatch
	}
	if o.MaxConcurrent == 0 {
		o.MaxConcurrent = defaultMaxConcurrent
	}
	return nil
}

// Server answers calls of its methods. It is an http.Handler for POSTs to any path;
// WebSocket returns another one. Its methods may be called concurrently.
type Server struct {
	options  ServerOptions
	methods  map[string]*Method
	document json.RawMessage
	openRPC  Document
	busy     chan struct{} // a slot for each HTTP request
	sockets  chan struct{} // a slot for each WebSocket
	// The room for bodies and messages that are not small.
	bodies, anonymousBodies *semaphore.Weighted

	mu      sync.Mutex     // guards the closing of stop
	stop    chan struct{}  // closed by Close
	serving sync.WaitGroup // WebSockets
}

// NewServer checks the methods and makes their document. It starts nothing.
func NewServer(info Info, methods []Method, o ServerOptions) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if info.Title == "" || info.Version == "" {
		return nil, errors.New("a JSON-RPC server needs a title and a version, for its document")
	}
	s := &Server{
		options: o, methods: map[string]*Method{},
		bodies: semaphore.NewWeighted(max(maxBodies, 2*o.MaxBody)), anonymousBodies: semaphore.NewWeighted(max(maxAnonymousBodies, 2*o.MaxBody)),
		busy: make(chan struct{}, o.MaxConcurrent), sockets: make(chan struct{}, o.MaxConcurrent), stop: make(chan struct{}),
	}
	for _, m := range methods {
		if err := m.validate(); err != nil {
			return nil, err
		}
		if s.methods[m.name] != nil {
			return nil, fmt.Errorf("method %s is defined twice", m.name)
		}
		s.methods[m.name] = &m
	}
	s.openRPC = describe(info, methods)
	var err error
	if s.document, err = encode(s.openRPC); err != nil {
		return nil, fmt.Errorf("describe the methods: %w", err)
	}
	return s, nil
}

// OpenRPC returns the document that rpc.discover answers.
func (s *Server) OpenRPC() any { return s.openRPC }

// Handle answers one request or one batch, without HTTP. It returns nil for notifications.
// The calls of a batch are made in order, one after another.
func (s *Server) Handle(ctx context.Context, raw []byte) []byte {
	if err := check(raw); err != nil {
		s.options.Observe("", 0, err)
		return s.write(failed(nil, err))
	}
	if kindOf(raw) == "a list" {
		return s.batch(ctx, raw)
	}
	answer := s.one(ctx, raw)
	if answer == nil {
		return nil
	}
	return s.write(answer)
}

func (s *Server) batch(ctx context.Context, raw []byte) []byte {
	var calls []json.RawMessage
	if err := json.Unmarshal(raw, &calls); err != nil {
		return s.write(failed(nil, Errorf(ParseError, "%v", err)))
	}
	if len(calls) == 0 {
		return s.write(failed(nil, Errorf(InvalidRequest, "the batch is empty")))
	}
	if len(calls) > s.options.MaxBatch {
		return s.write(failed(nil, Errorf(InvalidRequest, "a batch of %d calls: at most %d are taken at once", len(calls), s.options.MaxBatch)))
	}
	var out bytes.Buffer
	for _, call := range calls {
		var answer *response
		if int64(out.Len()) < s.options.MaxBody {
			answer = s.one(ctx, call)
		} else {
			r, _ := readRequest(call)
			answer = failed(r.id, Errorf(Busy, "not called: the answer to this batch is full, send the call again in another one"))
		}
		if answer != nil {
			out.WriteByte(',')
			out.Write(s.write(answer))
		}
	}
	if out.Len() == 0 {
		return nil
	}
	out.Bytes()[0] = '['
	out.WriteByte(']')
	return out.Bytes()
}

// one makes one call. It returns nil for a notification.
func (s *Server) one(ctx context.Context, raw json.RawMessage) *response {
	r, invalid := readRequest(raw)
	if invalid != nil {
		s.options.Observe("", 0, invalid)
		return failed(r.id, invalid)
	}
	started := time.Now()
	result, err := s.call(ctx, r)
	name := r.method
	if s.methods[name] == nil && name != discover {
		name = ""
	}
	s.options.Observe(name, time.Since(started), err)
	if r.id == nil {
		return nil
	}
	if err != nil {
		return failed(r.id, asError(err))
	}
	return &response{Version: version, ID: r.id, Result: result}
}

// call calls the method. The value of a panic goes to the log only: it may reveal more than
// the caller should know.
func (s *Server) call(ctx context.Context, r request) (result json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.options.Log.Error("a method panicked", zap.String("method", r.method), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			result, err = nil, &Error{Code: InternalError, Message: Words(InternalError), Data: "the method broke down; the server's log says where"}
		}
	}()
	if r.method == discover {
		return s.document, nil
	}
	m := s.methods[r.method]
	if m == nil {
		return nil, Errorf(MethodNotFound, "there is no method %q: %s lists them", short(r.method), discover)
	}
	value, err := m.call(ctx, m, r.params)
	if err != nil {
		return nil, err
	}
	return encode(value)
}

// write encodes the answer.
func (s *Server) write(r *response) []byte {
	raw, err := encode(r)
	if err == nil {
		return raw
	}
	s.options.Log.Error("an answer has no JSON", zap.Error(err))
	raw, _ = encode(failed(r.ID, Errorf(InternalError, "the answer has no JSON"))) // strings always have JSON
	return raw
}

func short(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return s[:maxShown] + "…"
}
