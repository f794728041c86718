package coordinator

import (
	"cmp"
	"context"
	"errors"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
)

type runnerParams struct {
	ContextID uint32      `json:"context_id"`
	Runner    hero.Runner `json:"runner"`
	callerParams
}

func (c *Coordinator) runnerMethods() []jsonrpc.Method {
	return []jsonrpc.Method{
		define(c, "runner.create", "Store a runner or supervisor. Admins may. Its secret is kept and never shown; one that is left out stays.",
			"runner", []int{jsonrpc.NotFound}, c.createRunner),
		define(c, "runner.load", "A runner, without its secret. Readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.loadRunner),
		define(c, "runner.list", "The context's runners, by id. Readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.listRunners),
		define(c, "runner.delete", "Remove a runner. Admins may.", "", []int{jsonrpc.NotFound}, c.deleteRunner),
	}
}

func (c *Coordinator) createRunner(ctx context.Context, p runnerParams) (hero.Runner, error) {
	if err := checkRunner(p.Runner); err != nil {
		return hero.Runner{}, err
	}
	unlock, err := c.enter(ctx, p.ContextID, p.callerParams, mayAdmin())
	if err != nil {
		return hero.Runner{}, err
	}
	defer unlock()
	if p.Runner.Secret == "" {
		stored, err := c.db.Runner(ctx, p.ContextID, p.Runner.ID)
		if err != nil && !errors.Is(err, redisdb.ErrNotFound) {
			return hero.Runner{}, err
		}
		p.Runner.Secret = stored.Secret
	}
	p.Runner.CreatedAt = 0 // the server sets the times
	if err := c.db.PutRunner(ctx, p.ContextID, p.Runner); err != nil {
		return hero.Runner{}, err
	}
	return c.loadedRunner(ctx, p.ContextID, p.Runner.ID)
}

func checkRunner(r hero.Runner) error {
	err := cmp.Or(
		checkID("runner.id", r.ID),
		checkKnown("runner", r.Unknown, "a runner has id, pubkey, address, topic, local, secret and type"),
		checkWord("runner.pubkey", r.PubKey, maxPubKey),
		checkWord("runner.address", r.Address, maxAddress),
		checkWord("runner.topic", r.Topic, maxName),
		checkWord("runner.secret", r.Secret, maxAddress),
		checkWord("runner.type", string(r.Type), maxName),
	)
	if err == nil && !r.Local && r.PubKey == "" && r.Address == "" {
		err = invalid("runner.address", "is missing, and so is pubkey: a runner that is not local cannot be reached")
	}
	return err
}

func (c *Coordinator) loadRunner(ctx context.Context, p in) (hero.Runner, error) {
	if err := c.see(ctx, p, mayRead()); err != nil {
		return hero.Runner{}, err
	}
	return c.loadedRunner(ctx, p.ContextID, p.ID)
}

func (c *Coordinator) loadedRunner(ctx context.Context, context, id uint32) (hero.Runner, error) {
	r, err := c.db.Runner(ctx, context, id)
	return showRunner(r), orNotFound(err, hero.RunnerKey(id), "look with runner.list, or create it with runner.create")
}

// showRunner hides the secret.
func showRunner(r hero.Runner) hero.Runner {
	r.Secret = ""
	return r
}

func (c *Coordinator) listRunners(ctx context.Context, p contextList) ([]hero.Runner, error) {
	if _, err := c.browse(ctx, p); err != nil {
		return nil, err
	}
	all, err := c.db.Runners(ctx, p.ContextID)
	all, err = withUnreadable(c, p.ContextID, all, err, hero.ReadRunner, func(r *hero.Runner) *string { return &r.Unreadable })
	return cut(p.page, all, showRunner), err
}

func (c *Coordinator) deleteRunner(ctx context.Context, p in) (bool, error) {
	return c.remove(ctx, p.ContextID, p.callerParams, checkID("id", p.ID), func() error {
		if _, err := c.loadedRunner(ctx, p.ContextID, p.ID); err != nil {
			return err
		}
		return c.db.DeleteRunner(ctx, p.ContextID, p.ID)
	})
}
