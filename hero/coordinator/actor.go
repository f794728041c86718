package coordinator

import (
	"cmp"
	"context"
	"fmt"

	"edda/hero"
	"edda/hero/jsonrpc"
)

type actorParams struct {
	Actor hero.Actor `json:"actor"`
	callerParams
}

func (c *Coordinator) actorMethods() []jsonrpc.Method {
	return []jsonrpc.Method{
		define(c, "actor.create", "Store an actor. Only the actor itself does.", "actor", nil, c.createActor),
		define(c, "actor.load", "An actor. Anybody may.", "", []int{jsonrpc.NotFound}, c.loadActor),
		define(c, "actor.list", "Actors, by id. Anybody may.", "", nil, c.listActors),
		define(c, "actor.delete", "Remove an actor that no context needs. Only the actor itself does.", "",
			[]int{jsonrpc.NotFound, jsonrpc.AlreadyExists}, c.deleteActor),
	}
}

func (c *Coordinator) createActor(ctx context.Context, p actorParams) (hero.Actor, error) {
	if err := checkActor(p.Actor); err != nil {
		return hero.Actor{}, err
	}
	if err := c.itself(ctx, p.callerParams, p.Actor.ID); err != nil {
		return hero.Actor{}, err
	}
	unlock, err := c.locks.lock(ctx, 0)
	if err != nil {
		return hero.Actor{}, err
	}
	defer unlock()
	p.Actor.CreatedAt = 0 // the server sets the times
	if err := c.db.PutActor(ctx, p.Actor); err != nil {
		return hero.Actor{}, err
	}
	return c.loadedActor(ctx, p.Actor.ID)
}

func checkActor(a hero.Actor) error {
	return cmp.Or(
		checkID("actor.id", a.ID),
		checkKnown("actor", a.Unknown, "an actor has id, pubkey and address"),
		checkWord("actor.pubkey", a.PubKey, maxPubKey),
		checkWords("actor.address", a.Address, maxAddress),
	)
}

// itself permits only the actor itself: a caller that writes an actor's key could act as
// that actor.
func (c *Coordinator) itself(ctx context.Context, w callerParams, id uint32) error {
	caller, err := c.caller(ctx, w, id)
	if err == nil && caller != id {
		return denied(caller, hero.ActorKey(id), "may not change another actor", "let the actor itself do it")
	}
	return err
}

func (c *Coordinator) loadActor(ctx context.Context, p byID) (hero.Actor, error) {
	if err := checkID("id", p.ID); err != nil {
		return hero.Actor{}, err
	}
	if _, err := c.caller(ctx, p.callerParams); err != nil {
		return hero.Actor{}, err
	}
	return c.loadedActor(ctx, p.ID)
}

func (c *Coordinator) loadedActor(ctx context.Context, id uint32) (hero.Actor, error) {
	a, err := c.db.Actor(ctx, id)
	return a, orNotFound(err, hero.ActorKey(id), "create it with actor.create")
}

func (c *Coordinator) listActors(ctx context.Context, p globalList) ([]hero.Actor, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if _, err := c.caller(ctx, p.callerParams); err != nil {
		return nil, err
	}
	all, err := c.db.Actors(ctx)
	all, err = withUnreadable(c, 0, all, err, hero.ReadActor, func(a *hero.Actor) *string { return &a.Unreadable })
	return cut(p.page, all, same), err
}

func (c *Coordinator) deleteActor(ctx context.Context, p byID) (bool, error) {
	if err := checkID("id", p.ID); err != nil {
		return false, err
	}
	if err := c.itself(ctx, callerParams{ActorID: p.ActorID, CallerID: p.CallerID}, p.ID); err != nil {
		return false, err
	}
	unlock, err := c.locks.lock(ctx, 0)
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, err := c.loadedActor(ctx, p.ID); err != nil {
		return false, err
	}
	if err := c.notLastAdmin(ctx, p.ID); err != nil {
		return false, err
	}
	return true, c.db.DeleteActor(ctx, p.ID)
}

// notLastAdmin refuses to delete the only admin of a context.
func (c *Coordinator) notLastAdmin(ctx context.Context, actor uint32) error {
	ids, err := c.db.Contexts(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		space, err := c.db.Context(ctx, id)
		if err != nil {
			return err
		}
		if len(space.Admins) == 1 && space.Admins[0] == actor {
			return conflict(hero.ActorKey(actor), fmt.Sprintf("it is the only admin of %s", space.Key()), "name another admin with context.create, or delete the context")
		}
	}
	return nil
}
