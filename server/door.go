package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
)

// door is one address and what is answered there; without an address it does
// nothing.
type door struct {
	addr     string
	handler  http.Handler
	listener net.Listener
}

func (d *door) listen() error {
	if d.addr == "" {
		return nil
	}
	l, err := net.Listen("tcp", d.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", d.addr, err)
	}
	d.listener = l
	return nil
}

// where it listens, once it does.
func (d *door) where() string {
	if d.listener == nil {
		return d.addr
	}
	return d.listener.Addr().String()
}

func (d *door) close() error {
	if d.listener == nil {
		return nil
	}
	if err := d.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close listener: %w", err)
	}
	return nil
}

// serve answers until ctx ends, then lets answers under way go out.
func (d *door) serve(ctx context.Context, log *log.Logger) error {
	if d.listener == nil {
		return nil
	}
	h := &http.Server{
		Handler: d.handler, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, ErrorLog: log,
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(d.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve http: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer cancel()
	if err := h.Shutdown(stop); err != nil {
		_ = h.Close() // the deadline passed: the rest is cut
	}
	<-served
	return nil
}
