package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"edda"
)

const (
	// readyWithin bounds the start of the embedded server, its streams' recovery
	// included.
	readyWithin = 30 * time.Second
	// readyStep is how often the start is looked at.
	readyStep = 100 * time.Millisecond
	// embeddedMemory bounds JetStream's memory storage, which Edda does not use.
	embeddedMemory = 64 << 20
	// EmbeddedSync is how often it syncs its files. What is published is kept for as long, so
	// that a power cut loses none of it.
	EmbeddedSync = 5 * time.Second
)

// EmbeddedOptions of the embedded server.
type EmbeddedOptions struct {
	// Dir holds the streams.
	Dir string
	// Addr is host:port to listen on, port 0 for any; where it is empty the
	// server is reached from this process alone.
	Addr string
	// SyncInterval is how often it syncs what it has written; EmbeddedSync when zero.
	SyncInterval time.Duration
	// SyncAlways syncs every write to disk before it is acknowledged.
	SyncAlways bool
	MaxPayload int // bytes; NATS's own when zero
	Log        *zap.Logger
}

// Embedded is a NATS server with JetStream in this process.
type Embedded struct {
	server  *server.Server
	log     *serverLog
	started chan struct{} // closed when Start has returned
	once    sync.Once
}

// StartEmbedded starts a server and returns when it takes connections. A port in
// use or a folder that cannot be written is an edda.Permanent error. Close ends it.
func StartEmbedded(ctx context.Context, o EmbeddedOptions) (*Embedded, error) {
	opts, err := o.server()
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "start nats: %w", err)
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "start nats: %w", err)
	}
	log := &serverLog{log: o.Log, first: make(chan string, 1)}
	if log.log == nil {
		log.log = zap.NewNop()
	}
	s.SetLoggerV2(log, false, false, false)
	e := &Embedded{server: s, log: log, started: make(chan struct{})}
	go func() {
		defer close(e.started)
		s.Start()
	}()
	if err := e.ready(ctx, log.first); err != nil {
		e.Close()
		return nil, edda.Classify(edda.Permanent, "start nats in %s: %w", o.Dir, err)
	}
	return e, nil
}

func (o EmbeddedOptions) server() (*server.Options, error) {
	opts := &server.Options{
		ServerName: "edda", JetStream: true, StoreDir: o.Dir, JetStreamMaxMemory: embeddedMemory,
		SyncAlways: o.SyncAlways, SyncInterval: cmp.Or(o.SyncInterval, EmbeddedSync), NoSigs: true, DontListen: o.Addr == "",
		NoSublistCache: true, // nearly every subject is that of one message: what is kept is never asked for
	}
	if o.MaxPayload > 0 {
		if o.MaxPayload > server.MAX_PAYLOAD_MAX_SIZE {
			return nil, fmt.Errorf("a payload of %d bytes is more than NATS allows", o.MaxPayload)
		}
		opts.MaxPayload = int32(o.MaxPayload)
	}
	if o.Addr == "" {
		return opts, nil
	}
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, err
	}
	opts.Host = host
	if opts.Port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("port %q is not a number", port)
	}
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
		return opts, nil
	}
	return opts, free(o.Addr)
}

// free looks whether the address can be had: the server itself only says so in
// its log.
func free(addr string) error {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use: another server runs there; stop it or choose another --nats-addr", addr)
	}
	if err != nil {
		return err
	}
	return l.Close()
}

// ready looks until the server takes connections, has said that it cannot, or
// the time is over.
func (e *Embedded) ready(ctx context.Context, fatal <-chan string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for !e.server.ReadyForConnections(readyStep) {
		select {
		case text := <-fatal:
			return errors.New(text)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		default:
		}
	}
	if !e.server.JetStreamEnabled() {
		return errors.New("jetstream is not enabled")
	}
	return nil
}

// Server is for [Connection].Server.
func (e *Embedded) Server() nats.InProcessConnProvider { return e.server }

// URL is where clients of other processes connect; empty where none can.
func (e *Embedded) URL() string {
	if e.server.Addr() == nil {
		return ""
	}
	return e.server.ClientURL()
}

// Healthy is nil unless a stream could not be written. The server takes nothing
// into such a stream any more, until it is started again.
func (e *Embedded) Healthy() error {
	if text := e.log.broken.Load(); text != nil {
		return fmt.Errorf("nothing is taken in: %s; make room on the disk and start again", *text)
	}
	return nil
}

// Close stops the server and returns when its files are closed.
func (e *Embedded) Close() {
	e.once.Do(func() {
		e.server.Shutdown()
		<-e.started
		e.server.WaitForShutdown()
	})
}

// writeFailed is how the server says that it gives a stream up: it has no other
// word for it that can be asked for in the process.
const writeFailed = "critical write error"

// serverLog keeps the server's last words, and what a full disk made it say.
type serverLog struct {
	log    *zap.Logger
	first  chan string // capacity 1
	broken atomic.Pointer[string]
}

var _ server.Logger = (*serverLog)(nil)

func (l *serverLog) Noticef(string, ...any) {}
func (l *serverLog) Debugf(string, ...any)  {}
func (l *serverLog) Tracef(string, ...any)  {}

func (l *serverLog) Warnf(format string, v ...any) {
	l.log.Warn("nats server", zap.String("text", fmt.Sprintf(format, v...)))
}

func (l *serverLog) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if strings.Contains(text, writeFailed) {
		l.broken.CompareAndSwap(nil, &text)
	}
	l.log.Error("nats server", zap.String("text", text))
}

func (l *serverLog) Fatalf(format string, v ...any) {
	select {
	case l.first <- fmt.Sprintf(format, v...):
	default:
	}
}
