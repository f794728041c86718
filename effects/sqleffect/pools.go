package sqleffect

import (
	"database/sql"
	"errors"
	"sync"
	"time"

	"edda"
	"edda/effects/dial"
)

// The bounds of what is kept open.
const (
	// maxPools databases are kept: one a DSN. More tenants than this with a
	// database each take turns.
	maxPools = 64
	// maxConnections to one database: servers allow about a hundred to everybody.
	maxConnections = 16
	// idleConnection is closed after this; firewalls forget connections sooner or later.
	idleConnection = 5 * time.Minute
	// oldConnection is closed after this, so that load balancers and changed
	// addresses are noticed.
	oldConnection = 30 * time.Minute
	// idlePool is closed after this: its DSN is no longer used, as after a rotation.
	idlePool = 10 * time.Minute
)

// pools keeps one pool of connections a source.
type pools struct {
	guard *dial.Guard

	mu   sync.Mutex // guards below
	open map[string]*pool
}

// pool is the connections to one source.
type pool struct {
	*sql.DB
	source source
	users  int       // guarded by pools.mu
	used   time.Time // guarded by pools.mu
}

func newPools(g *dial.Guard) *pools { return &pools{guard: g, open: map[string]*pool{}} }

// take gives the pool of a source, to be given back.
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

// sweep closes what nobody has used for long, and the longest unused where
// there are too many.
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
	_ = p.open[key].Close() // nobody uses it, and nothing can be done about it
	delete(p.open, key)
}

func (p *pools) make(s source) (*pool, error) {
	conf, err := s.tlsConfig()
	if err != nil {
		return nil, err
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

// forgetIdle closes the connections that nobody uses.
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
