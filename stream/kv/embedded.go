package kv

import (
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
	// readyWithin bounds the start of the embedded server, with the recovery of its streams.
	readyWithin = 30 * time.Second
	// readyStep is the interval of the readiness checks.
	readyStep = 100 * time.Millisecond
	// embeddedMemory bounds JetStream's memory storage. Edda keeps only consumer states and leases there.
	embeddedMemory = 64 << 20
	// EmbeddedSync is the interval of file syncs. The store keeps published work as long, so that a
	// power cut loses none.
	EmbeddedSync = 5 * time.Second
)

// EmbeddedOptions configure the embedded server.
type EmbeddedOptions struct {
	// Dir holds the streams.
	Dir string
	// Addr is the host:port to listen on, with port 0 for any. If it is empty, only this process
	// can connect.
	Addr string
	// SyncAlways syncs every write before its ack.
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

// StartEmbedded starts a server and returns when it accepts connections. A port in use or a
// directory that cannot be written is an edda.Permanent error. Close stops the server.
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
		SyncAlways: o.SyncAlways, SyncInterval: EmbeddedSync, NoSigs: true, DontListen: o.Addr == "",
		NoSublistCache: true, // nearly every subject has one message, so the cache would never hit
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

// free checks that the address is free. The server itself reports a used port only in its log.
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

// ready waits until the server accepts connections. It fails on a fatal log line, at the end of
// ctx, or after readyWithin.
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

// Server returns the server for [Connection].Server.
func (e *Embedded) Server() nats.InProcessConnProvider { return e.server }

// URL returns the address for other processes; empty if there is none.
func (e *Embedded) URL() string {
	if e.server.Addr() == nil {
		return ""
	}
	return e.server.ClientURL()
}

// Healthy returns an error if a stream could not be written. The server then stores nothing in that
// stream until it restarts.
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

// writeFailed is in the log line with which the server gives up a stream. No API reports that
// within the process.
const writeFailed = "critical write error"

// serverLog forwards the server's log, and keeps its first fatal line and its first write failure.
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
