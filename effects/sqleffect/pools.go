package sqleffect

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"edda"
	"edda/effects/dial"
)

// The bounds of pools and their connections.
const (
	// maxPools bounds the pools, one for each DSN. If more tenants have a database each, the pool
	// that was used longest ago is closed.
	maxPools = 64
	// maxConnections bounds the connections to one database. Servers allow about a hundred in all.
	maxConnections = 16
	// idleConnection is how long an idle connection is kept, because firewalls drop idle ones.
	idleConnection = 5 * time.Minute
	// oldConnection is how long a connection is kept, so that changed addresses take effect.
	oldConnection = 30 * time.Minute
	// idlePool is how long an unused pool is kept, such as one of a DSN before a rotation.
	idlePool = 10 * time.Minute
)

// pools has one pool of connections for each source.
type pools struct {
	guard *dial.Guard

	mu   sync.Mutex // guards below
	open map[string]*pool
}

// pool has the connections to one source.
type pool struct {
	*sql.DB
	source source
	users  int       // guarded by pools.mu
	used   time.Time // guarded by pools.mu
}

func newPools(g *dial.Guard) *pools { return &pools{guard: g, open: map[string]*pool{}} }

// take returns the pool of a source. The caller must give it back.
func (p *pools) take(s source) (*pool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.open[s.key()]
	if !ok {
		p.sweep(time.Now())
		if len(p.open) >= maxPools {
			return nil, notSent(edda.Temporary, errors.New("too many databases are in use at once"))
		}
		made, err := p.make(s)
		if err != nil {
			return nil, notSent(edda.Permanent, err)
		}
		found, p.open[s.key()] = made, made
	}
	found.users++
	return found, nil
}

func (p *pools) give(used *pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	used.users--
	used.used = time.Now()
}

// sweep closes pools that were unused for long, and at the bound the one used longest ago.
func (p *pools) sweep(now time.Time) {
	oldest := ""
	for key, pool := range p.open {
		switch {
		case pool.users > 0:
		case now.Sub(pool.used) > idlePool:
			p.drop(key)
		case oldest == "" || pool.used.Before(p.open[oldest].used):
			oldest = key
		}
	}
	if len(p.open) >= maxPools && oldest != "" {
		p.drop(oldest)
	}
}

func (p *pools) drop(key string) {
	_ = p.open[key].Close() // it is unused, and the error has no consequence
	delete(p.open, key)
}

func (p *pools) make(s source) (*pool, error) {
	var conf *tls.Config
	if s.tls != nil {
		var err error
		if conf, err = dial.TLS(s.tls); err != nil {
			return nil, err
		}
	}
	connector, err := s.database.connector(s, p.guard, conf)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(s.database.connections(s.readonly))
	db.SetMaxIdleConns(maxConnections)
	db.SetConnMaxIdleTime(idleConnection)
	db.SetConnMaxLifetime(oldConnection)
	return &pool{DB: db, source: s}, nil
}

// forgetIdle closes the idle connections.
func (p *pool) forgetIdle() {
	p.SetMaxIdleConns(0)
	p.SetMaxIdleConns(maxConnections)
}

func (p *pools) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.open {
		p.drop(key)
	}
}

// source is a database that a manifest names.
type source struct {
	driver   string // the manifest's word
	database database
	dsn      string
	tls      any
	readonly bool // only of SQLite, whose read-only connections differ
}

// sourceOf reads driver, dsn and tls.
func sourceOf(config map[string]any, readonly bool) (source, error) {
	s := source{tls: config["tls"]}
	s.dsn, _ = config["dsn"].(string)
	s.driver, _ = config["driver"].(string)
	if s.dsn == "" {
		return s, errors.New("dsn is empty")
	}
	if byScheme := driverOf(s.dsn); s.driver == "" {
		s.driver = byScheme
	} else if byScheme != "" && byScheme != s.driver {
		return s, errors.New("driver and the dsn's scheme differ")
	}
	var known bool
	if s.database, known = databases()[s.driver]; !known {
		return s, fmt.Errorf("which database the dsn is for cannot be seen: let it begin with postgres://, mysql:// or sqlite:, or give driver: %s", driverWords())
	}
	s.readonly = readonly && s.driver == "sqlite" // such a connection cannot write
	return s, nil
}

func driverWords() string { return strings.Join(slices.Sorted(maps.Keys(databases())), ", ") }

// driverOf returns the driver of a DSN's scheme, or empty.
func driverOf(dsn string) string {
	for scheme, driver := range map[string]string{"postgres://": "postgres", "postgresql://": "postgres", "mysql://": "mysql", "mariadb://": "mysql", "sqlite:": "sqlite", "file:": "sqlite"} {
		if strings.HasPrefix(dsn, scheme) {
			return driver
		}
	}
	return ""
}

// key identifies the source. It contains secrets.
func (s source) key() string {
	return fmt.Sprintf("%s\x00%s\x00%s\x00%t", s.driver, s.dsn, dial.TLSKey(s.tls), s.readonly)
}

// connect takes a connection from the pool. A server's refusal may be temporary, and nothing was
// done.
func connect(ctx context.Context, p *pool) (*sql.Conn, error) {
	conn, err := p.Conn(ctx)
	if err == nil || ctx.Err() != nil {
		return conn, err
	}
	if v, answered := p.source.database.judge(err); v.absent {
		return nil, errAbsent
	} else if answered {
		v.status = statusLater
		return nil, &verdictError{v}
	}
	return nil, err
}

var errAbsent = errors.New("the database's file cannot be opened")

// unreached is the error of a call that failed before its commit.
func unreached(err error) error {
	if errors.Is(err, dial.ErrForbidden) {
		return notSent(edda.Permanent, fmt.Errorf("the database's address: %w; effects.allow can list its host, its socket or its file", dial.ErrForbidden))
	}
	return notSent(edda.Temporary, errors.New(cause(err)))
}

// cause returns why a connection failed, without the parts of a DSN in a driver's error.
func cause(err error) string {
	if errors.Is(err, errAbsent) {
		return err.Error()
	}
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &dns):
		return "the database's host: " + dns.Err
	case errors.As(err, &certificate):
		return "the database's certificate is not trusted"
	case errors.As(err, &op):
		return "the connection to the database: " + op.Err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "the connection to the database: no answer in time"
	}
	return "the connection to the database was lost"
}
