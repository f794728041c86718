// Package sqleffect calls effects in PostgreSQL, MySQL or MariaDB, and SQLite: one statement with
// parameters for each command.
//
// It promises that a command has its effect exactly once in its database, even if the answer to
// the commit is lost. The statement runs in one transaction with a row of the table edda_effects,
// which holds the command's key and result. A call that finds the row runs nothing and answers
// with that result.
//
// It refuses values pasted into SQL, more rows than max_rows, statements that commit by
// themselves, and addresses and files that the guard does not allow. Errors never show a DSN.
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

// Provider runs statements on pooled connections.
type Provider struct{ pools *pools }

// New makes a provider. It connects to nothing yet.
func New(o Options) *Provider { return &Provider{newPools(o.Guard)} }

// Close closes all connections; no call may be under way.
func (p *Provider) Close() { p.pools.close() }

// Call runs one command; see effects.Provider. An error that is not effects.ErrNotSent means that
// the answer to the commit was lost: the same call finds out what it did.
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

// notSent is the error of a call that surely changed nothing.
func notSent(class, err error) error {
	return edda.Classify(class, "%w: %w", effects.ErrNotSent, err)
}

// errEnded is the error of a call whose time ran out before its commit.
var errEnded = errors.New("stopped and rolled back")
