package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
)

type contextParams struct {
	Context hero.Context `json:"context"`
	callerParams
}

func (c *Coordinator) contextMethods() []jsonrpc.Method {
	return []jsonrpc.Method{
		define(c, "context.create", "Make a context, or change its lists. An actor that exists makes one with itself among the admins; only admins change it.",
			"context", []int{jsonrpc.NotFound}, c.createContext),
		define(c, "context.load", "A context. Its readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.loadContext),
		define(c, "context.list", "The contexts that the caller may read, by id.", "", nil, c.listContexts),
		define(c, "context.delete", "Remove a context that holds no objects. Its admins may.", "",
			[]int{jsonrpc.NotFound, jsonrpc.AlreadyExists}, c.deleteContext),
	}
}

func (c *Coordinator) createContext(ctx context.Context, p contextParams) (hero.Context, error) {
	if err := checkSpace(p.Context); err != nil {
		return hero.Context{}, err
	}
	caller, err := c.caller(ctx, p.callerParams, p.Context.Admins[0])
	if err != nil {
		return hero.Context{}, err
	}
	unlock, err := c.locks.lock(ctx, p.Context.ID)
	if err != nil {
		return hero.Context{}, err
	}
	defer unlock()
	if err := c.mayMake(ctx, p.Context, caller); err != nil {
		return hero.Context{}, err
	}
	p.Context.CreatedAt = 0 // the server sets the times
	if err := c.db.PutContext(ctx, p.Context); err != nil {
		return hero.Context{}, err
	}
	return c.context(ctx, p.Context.ID)
}

func checkSpace(s hero.Context) error {
	if s.ID == 0 {
		return invalid("context.id", "is missing or 0: database 0 holds the actors, contexts begin at 1")
	}
	if err := checkKnown("context", s.Unknown, "a context has id, admins, readers and executors"); err != nil {
		return err
	}
	if len(s.Admins) == 0 {
		return invalid("context.admins", "is empty: nobody could ever change the context")
	}
	return cmp.Or(checkIDs("context.admins", s.Admins), checkIDs("context.readers", s.Readers), checkIDs("context.executors", s.Executors))
}

// mayMake checks that the caller may store the context: an existing one as its admin, a new
// one as an actor that exists and is among its admins.
func (c *Coordinator) mayMake(ctx context.Context, s hero.Context, caller uint32) error {
	stored, err := c.db.Context(ctx, s.ID)
	switch {
	case errors.Is(err, redisdb.ErrNotFound):
		if !slices.Contains(s.Admins, caller) {
			return denied(caller, s.Key(), "is not among the admins of the context it makes", "add it to context.admins")
		}
		_, err := c.loadedActor(ctx, caller)
		return err
	case err != nil:
		return err
	case !stored.MayAdmin(caller):
		return denied(caller, s.Key(), "may not change this context", "ask one of its admins to")
	}
	return nil
}

func (c *Coordinator) loadContext(ctx context.Context, p byID) (hero.Context, error) {
	return c.named(ctx, p, mayRead())
}

// named loads the context that a call is about, for a caller that has the right in it.
func (c *Coordinator) named(ctx context.Context, p byID, r right) (hero.Context, error) {
	caller, err := c.caller(ctx, p.callerParams)
	if err != nil {
		return hero.Context{}, err
	}
	if p.ID == 0 {
		return hero.Context{}, invalid("id", "is missing or 0: database 0 holds the actors, contexts begin at 1")
	}
	return c.permit(ctx, p.ID, caller, r)
}

func (c *Coordinator) listContexts(ctx context.Context, p globalList) ([]hero.Context, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	caller, err := c.caller(ctx, p.callerParams)
	if err != nil {
		return nil, err
	}
	ids, err := c.db.Contexts(ctx)
	if err != nil {
		return nil, err
	}
	var all []hero.Context
	for _, id := range ids {
		s, err := c.db.Context(ctx, id)
		if errors.Is(err, redisdb.ErrNotFound) {
			continue // deleted meanwhile
		}
		if broken, other := redisdb.Unreadable(err); other != nil {
			return nil, other
		} else if len(broken) > 0 { // its readers are not known
			s = stub(c, id, broken[0], hero.ReadContext, func(s *hero.Context) *string { return &s.Unreadable })
		}
		if caller == noCaller || s.MayRead(caller) {
			all = append(all, s)
		}
	}
	return cut(p.page, all, same), nil
}

func (c *Coordinator) deleteContext(ctx context.Context, p byID) (bool, error) {
	if _, err := c.named(ctx, p, mayAdmin()); err != nil {
		return false, err
	}
	unlock, err := c.locks.lock(ctx, p.ID)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := c.empty(ctx, p.ID); err != nil {
		return false, err
	}
	return true, c.db.DeleteContext(ctx, p.ID)
}

// empty refuses to delete a context that holds objects: a later context of the same id
// would have them.
func (c *Coordinator) empty(ctx context.Context, id uint32) error {
	var left []string
	for _, kind := range []struct {
		name  string
		count func() (int, error)
	}{
		{"flows", counted(ctx, id, c.db.Flows)}, {"jobs", counted(ctx, id, c.db.Jobs)},
		{"messages", counted(ctx, id, c.db.Messages)}, {"runners", counted(ctx, id, c.db.Runners)},
	} {
		n, err := kind.count()
		if err != nil {
			return err
		}
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, kind.name))
		}
	}
	if len(left) > 0 {
		return conflict(hero.ContextKey(id), "it still holds "+strings.Join(left, ", "), "delete them first")
	}
	return nil
}

func counted[T any](ctx context.Context, id uint32, all func(context.Context, uint32) ([]T, error)) func() (int, error) {
	return func() (int, error) {
		l, err := all(ctx, id)
		return len(l), err
	}
}
