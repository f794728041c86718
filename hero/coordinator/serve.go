package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda/hero"
	"edda/hero/jsonrpc"
)

// The addresses of the original.
const (
	DefaultHTTPAddr = "127.0.0.1:9652"
	DefaultWSAddr   = "127.0.0.1:9653"
)

func (o *Options) validate() error {
	if o.HTTPAddr == "" {
		o.HTTPAddr = DefaultHTTPAddr
	}
	if o.WSAddr == "" {
		o.WSAddr = DefaultWSAddr
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.Secrets == nil {
		o.Secrets = hero.SecretNames()
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	for token, actor := range o.Tokens {
		if len(token) < minToken || actor == 0 {
			return fmt.Errorf("coordinator: the token of actor %d: want at least %d characters, and an actor other than 0", actor, minToken)
		}
	}
	for _, actor := range o.Hashes {
		if actor == 0 {
			return errors.New("coordinator: a token's actor: want another than 0")
		}
	}
	for _, addr := range []string{o.HTTPAddr, o.WSAddr} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("address %q: want host:port, as in %s", addr, DefaultHTTPAddr)
		}
		if err := loopback(addr); err != nil && len(o.Tokens)+len(o.Hashes) == 0 {
			return err
		}
	}
	return nil
}

// Listen takes the addresses, so that a port in use is known before anything
// else starts. Run does it where it was not done.
func (c *Coordinator) Listen() error {
	if err := c.http.Listen(); err != nil {
		return err
	}
	if err := c.ws.Listen(); err != nil {
		return errors.Join(err, c.http.Close())
	}
	return c.rpc.ServesAt(jsonrpc.Address{Name: "HTTP", URL: "http://" + c.HTTPAddr()}, jsonrpc.Address{Name: "WebSocket", URL: "ws://" + c.WSAddr()})
}

// HTTPAddr and WSAddr are where it listens, once it does.
func (c *Coordinator) HTTPAddr() string { return c.http.Addr() }
func (c *Coordinator) WSAddr() string   { return c.ws.Addr() }

// Run serves both addresses until ctx ends; then calls under way finish and
// WebSockets are closed. It returns nil at a stop.
func (c *Coordinator) Run(ctx context.Context) error {
	if err := c.Listen(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.http.Run(ctx) })
	group.Go(func() error { return c.ws.Run(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		c.rpc.Close()
		return nil
	})
	return group.Wait()
}
