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

// callTimeout bounds one call, so that a client hears of a Redis that hangs
// before it gives up itself; most clients wait half a minute.
const callTimeout = 20 * time.Second

// Flows runs flows. Its methods may be called concurrently; each returns once
// what it did is durable. An error is edda.Temporary, to be tried again, or
// edda.Permanent.
type Flows interface {
	// Start begins the flow; false means that it is already running.
	Start(ctx context.Context, d flow.Definition) (started bool, err error)
	// Cancel ends the flow; false means that there was nothing to end.
	Cancel(ctx context.Context, context, id uint32) (bool, error)
	// Met notes that a prerequisite holds, and returns the nodes it made ready.
	Met(ctx context.Context, context, id uint32, name string) (ready []uint32, err error)
	// Report tells a flow what became of a node.
	Report(ctx context.Context, r hero.Report) error
	// State is where the flow stands; false means that it was never started.
	State(ctx context.Context, context, id uint32) (flow.State, bool, error)
}

// Options of a coordinator. The zero value serves on the documented addresses,
// for anybody who reaches them.
type Options struct {
	// HTTPAddr and WSAddr are host:port; 127.0.0.1:9652 and :9653 when empty.
	HTTPAddr, WSAddr string
	// Tokens are the secrets that clients present as Authorization: Bearer, each
	// with the actor it stands for. Without any, calls say themselves who calls,
	// and only loopback addresses are served.
	Tokens map[string]uint32
	// Hashes are the same by their SHA-256, so that nobody reads the secrets where
	// they are kept.
	Hashes map[[sha256.Size]byte]uint32
	// ScriptTypes are accepted besides the documented ones.
	ScriptTypes []hero.ScriptType
	// Secrets are patterns of the names of variables whose values callers who may
	// only read do not see; hero.SecretNames unless said.
	Secrets []string
	// Mycelium tells whether Mycelium is reachable, for Check; not asked when nil.
	Mycelium func(ctx context.Context) error
	// Version is shown in the OpenRPC document; "dev" when empty.
	Version string
	Log     *zap.Logger
	// Metrics is where the coordinator's metrics go; nowhere when nil.
	Metrics prometheus.Registerer
}

// Coordinator serves the methods. Its methods may be called concurrently.
type Coordinator struct {
	options Options
	db      *redisdb.DB
	flows   Flows
	types   map[hero.ScriptType]bool
	turns   turns
	meter   *meter
	tokens  access.Secrets[uint32] // the actors of tokens
	rpc     *jsonrpc.Server
	// unreadable is what lists say in the log of hashes that they cannot read.
	unreadable *logthrottle.Throttle
	http       *httpserver.Server
	ws         *httpserver.Server
}

// New makes a coordinator; nothing listens before Listen.
func New(db *redisdb.DB, flows Flows, o Options) (*Coordinator, error) {
	if db == nil || flows == nil {
		return nil, errors.New("coordinator: needs a database and flows")
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Coordinator{options: o, db: db, flows: flows, types: scriptTypes(o.ScriptTypes), turns: newTurns(), tokens: newTokens(o.Tokens, o.Hashes)}
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
	if len(c.tokens) == 0 { // a token is what pages of others do not have
		guard = sameHost
	}
	c.http = c.newHTTPServer("coordinator", c.options.HTTPAddr, guard(bounded(c.rpc)))
	c.ws = c.newHTTPServer("coordinator_websocket", c.options.WSAddr, guard(c.rpc.WebSocket()))
	return nil
}

// OpenRPC is the document that rpc.discover returns.
func (c *Coordinator) OpenRPC() any { return c.rpc.OpenRPC() }

// Check tells whether the coordinator can do its work: Redis takes writes, and
// Mycelium answers.
func (c *Coordinator) Check(ctx context.Context) error {
	var mycelium error
	if c.options.Mycelium != nil {
		mycelium = wrap("mycelium", c.options.Mycelium(ctx))
	}
	return errors.Join(wrap("redis", c.db.Ping(ctx)), mycelium)
}
