// Package sqleffect calls effects in PostgreSQL, MySQL or MariaDB, and SQLite:
// one statement a command, with parameters.
//
// What it promises: a command has its effect exactly once in its database, also
// when the answer to a commit is lost. Each runs in one transaction with a row
// of the table edda_effects that holds its key and its result; whoever finds
// the row does nothing and answers with that result. What it refuses: text
// pasted into SQL, more rows than asked for, statements that commit by
// themselves, and addresses and files that the guard does not allow. DSNs never
// show in errors.
package sqleffect

import (
	"context"
	"errors"

	"edda"
	"edda/effects"
	"edda/effects/dial"
)

// Options of the provider. Guard is required.
type Options struct {
	Guard *dial.Guard
}

// Provider runs statements over connections that it keeps.
type Provider struct{ pools *pools }

// New makes a provider; nothing is connected yet.
func New(o Options) *Provider { return &Provider{newPools(o.Guard)} }

// Close closes all connections; no call may be under way.
func (p *Provider) Close() { p.pools.close() }

// Call runs one command; see effects.Provider. An error that is not
// effects.ErrNotSent means that the commit's answer was lost: the same call
// finds out what came of it.
func (p *Provider) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	r, err := read(c)
	if err != nil {
		return effects.Response{}, notSent(edda.Permanent, err)
	}
	pool, err := p.pools.take(r.source)
	if err != nil {
		return effects.Response{}, err
	}
	defer p.pools.give(pool)
	return r.run(ctx, pool)
}

// notSent says that nothing was done, for sure.
func notSent(class, err error) error {
	return edda.Classify(class, "%w: %w", effects.ErrNotSent, err)
}

// errEnded is what a call gets whose time was up before it was committed.
var errEnded = errors.New("stopped and rolled back")
