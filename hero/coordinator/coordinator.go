// Package coordinator serves the coordinator's methods: the objects of the Hero
// systems, and flows of jobs, over JSON-RPC by HTTP and WebSocket.
//
// It promises to check every call before it writes: fields, references and permissions. A
// refused call changes nothing, and its error.data names the field or key and what to do.
// The coordinator itself is stateless: objects are in Redis, and flows run behind Flows.
package coordinator

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda/access"
	"edda/hero"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
	"edda/internal/httpserver"
	"edda/internal/logthrottle"
)

// callTimeout bounds one call. It is below the half minute that most clients wait, so that
// they get the error of a Redis that hangs.
const callTimeout = 20 * time.Second

// Flows runs flows. Its methods may be called concurrently. Each returns once its change is
// durable. An error is edda.Temporary, for a retry, or edda.Permanent.
type Flows interface {
	// Start starts the flow; false means that it is running already.
	Start(ctx context.Context, d flow.Definition) (started bool, err error)
	// Cancel ends the flow; false means that it was not running.
	Cancel(ctx context.Context, context, id uint32) (bool, error)
	// Met records that a prerequisite holds, and returns the nodes that it made ready.
	Met(ctx context.Context, context, id uint32, name string) (ready []uint32, err error)
	// Report tells a flow the progress of a node.
	Report(ctx context.Context, r hero.Report) error
	// State returns the flow's state; false means that it was never started.
	State(ctx context.Context, context, id uint32) (flow.State, bool, error)
}

// Options configure a coordinator. The zero value serves on the documented addresses, for
// every client that can reach them.
type Options struct {
	// HTTPAddr and WSAddr are host:port; 127.0.0.1:9652 and :9653 when empty.
	HTTPAddr, WSAddr string
	// Tokens maps the secrets that clients send as Authorization: Bearer to actors.
	// Without tokens a call names its caller, and only loopback addresses are served.
	Tokens map[string]uint32
	// Hashes maps tokens by their SHA-256, which keeps the secrets out of the
	// configuration.
	Hashes map[[sha256.Size]byte]uint32
	// ScriptTypes lists types that are accepted besides the documented ones.
	ScriptTypes []hero.ScriptType
	// Secrets are patterns of the names of variables whose values are hidden from callers
	// that may only read; hero.SecretNames by default.
	Secrets []string
	// Mycelium tells Check whether Mycelium is reachable; nil means that it is not used.
	Mycelium func(ctx context.Context) error
	// Version is for the OpenRPC document; "dev" by default.
	Version string
	Log     *zap.Logger
	// Metrics registers the coordinator's metrics, unless it is nil.
	Metrics prometheus.Registerer
}

// Coordinator serves the JSON-RPC methods. Its own methods may be called concurrently.
type Coordinator struct {
	options Options
	db      *redisdb.DB
	flows   Flows
	types   map[hero.ScriptType]bool
	locks   locks
	meter   *meter
	tokens  access.SecretHashes[uint32] // the actors of tokens
	rpc     *jsonrpc.Server
	// unreadable logs the hashes that lists cannot read.
	unreadable *logthrottle.Throttle
	http       *httpserver.Server
	ws         *httpserver.Server
}

// New makes a coordinator. It does not listen before Listen.
func New(db *redisdb.DB, flows Flows, o Options) (*Coordinator, error) {
	if db == nil || flows == nil {
		return nil, errors.New("coordinator: needs a database and flows")
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Coordinator{options: o, db: db, flows: flows, types: scriptTypes(o.ScriptTypes), locks: newLocks(), tokens: newTokens(o.Tokens, o.Hashes)}
	c.unreadable = logthrottle.New(c.options.Log, "list objects: a hash cannot be read")
	return c, c.serve()
}

func (c *Coordinator) serve() error {
	methods := c.methods()
	var err error
	if c.meter, err = newMeter(c.options.Metrics, names(methods), c.types); err != nil {
		return err
	}
	info := jsonrpc.Info{Title: "Coordinator", Version: c.options.Version, Description: "Objects of the Hero systems, and flows of jobs."}
	server := jsonrpc.ServerOptions{Log: c.options.Log, Observe: c.meter.observe}
	if len(c.tokens) > 0 {
		server.Auth = c.auth
	} else {
		server.Received = httpserver.Authenticated // without tokens every caller is trusted
	}
	if c.rpc, err = jsonrpc.NewServer(info, methods, server); err != nil {
		return err
	}
	guard := func(h http.Handler) http.Handler { return h }
	if len(c.tokens) == 0 { // web pages of others have no token
		guard = sameHost
	}
	c.http = c.newHTTPServer("coordinator", c.options.HTTPAddr, guard(bounded(c.rpc)))
	c.ws = c.newHTTPServer("coordinator_websocket", c.options.WSAddr, guard(c.rpc.WebSocket()))
	return nil
}

// OpenRPC returns the document that rpc.discover answers.
func (c *Coordinator) OpenRPC() any { return c.rpc.OpenRPC() }

// Check reports whether Redis takes writes and Mycelium answers.
func (c *Coordinator) Check(ctx context.Context) error {
	var mycelium error
	if c.options.Mycelium != nil {
		mycelium = wrap("mycelium", c.options.Mycelium(ctx))
	}
	return errors.Join(wrap("redis", c.db.Ping(ctx)), mycelium)
}

// stripes is the number of locks: few contexts share one, since Redis has 16 databases by
// default.
const stripes = 64

// locks are striped mutexes, by context. A call holds one from its read of a context to its
// write, so that no flow starts in between.
type locks [stripes]chan struct{}

func newLocks() locks {
	var l locks
	for i := range l {
		l[i] = make(chan struct{}, 1)
	}
	return l
}

// lock locks a context, or the actors for 0. The caller must unlock it.
func (l *locks) lock(ctx context.Context, id uint32) (unlock func(), err error) {
	held := l[id%stripes]
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
