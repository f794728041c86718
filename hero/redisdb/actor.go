package redisdb

import (
	"context"

	"edda/hero"
)

// Actor reads an actor.
func (d *DB) Actor(ctx context.Context, id uint32) (hero.Actor, error) {
	return get(ctx, d, 0, hero.ActorKey(id), hero.ReadActor)
}

// PutActor creates or replaces an actor.
func (d *DB) PutActor(ctx context.Context, a hero.Actor) error {
	return put(ctx, d, 0, a, "id", hero.ReadActor, func(a *hero.Actor, was hero.Actor, _ bool) error {
		d.stamp(&a.CreatedAt, &a.UpdatedAt, was.CreatedAt)
		return nil
	})
}

// Actors lists all, by id; see Flows about an error.
func (d *DB) Actors(ctx context.Context) ([]hero.Actor, error) {
	return scan(ctx, d, 0, "actor", hero.IsActorKey, hero.ReadActor, byID(func(a hero.Actor) [2]uint32 { return [2]uint32{a.ID} }))
}

// DeleteActor deletes an actor.
func (d *DB) DeleteActor(ctx context.Context, id uint32) error {
	return remove(ctx, d, 0, hero.ActorKey(id), hero.ReadActor)
}

// stamp sets the times of an object that is written: it was created when it was
// created first.
func (d *DB) stamp(created, updated *uint32, was uint32) {
	*updated = d.seconds()
	switch {
	case was != 0:
		*created = was
	case *created == 0:
		*created = *updated
	}
}
