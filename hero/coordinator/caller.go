package coordinator

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"net/http"

	"edda/access"
	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
	"edda/internal/httpserver"
)

// minToken is too long to guess.
const minToken = 16

// newTokens notes the actors of the tokens, some of which are hashes already.
func newTokens(given map[string]uint32, hashes map[[sha256.Size]byte]uint32) access.Secrets[uint32] {
	t := access.Secrets[uint32]{}
	maps.Copy(t, hashes)
	for token, actor := range given {
		t.Add(token, actor)
	}
	return t
}

// callerKey is where auth leaves the token's actor in a call's context.
type callerKey struct{}

func (c *Coordinator) auth(ctx context.Context, r *http.Request) (context.Context, error) {
	token, ok := access.BearerToken(r)
	if !ok {
		return nil, failed(jsonrpc.PermissionDenied, "Permission denied", Detail{Why: "no token was sent", Do: "send the header Authorization: Bearer <token>"})
	}
	actor, ok := c.tokens.Owner(token)
	if !ok {
		return nil, failed(jsonrpc.PermissionDenied, "Permission denied", Detail{Why: "the token is not known here", Do: "ask the operator for the token of your actor"})
	}
	httpserver.Authenticated(ctx)
	return context.WithValue(ctx, callerKey{}, actor), nil
}

// nobody is the caller of a call that names none, where the server has no
// tokens: whoever can reach it.
const nobody = 0

// caller is who makes the call: the token's actor; without tokens the first
// that is said, where later ones are what the object says of itself.
func (c *Coordinator) caller(ctx context.Context, w who, object ...uint32) (uint32, error) {
	if actor, ok := ctx.Value(callerKey{}).(uint32); ok {
		if w.ActorID != 0 && w.ActorID != actor {
			return 0, denied(actor, "", "may not call as another actor", "leave actor_id out: the token says who calls")
		}
		return actor, nil
	}
	for _, id := range append([]uint32{w.ActorID, w.CallerID}, object...) {
		if id != 0 {
			return id, nil
		}
	}
	return nobody, nil
}

// creator is caller for an object that keeps who created it: nobody creates in
// another's name.
func (c *Coordinator) creator(ctx context.Context, w who, object uint32) (uint32, error) {
	caller, err := c.caller(ctx, w, object)
	switch {
	case err != nil:
		return 0, err
	case caller == nobody:
		return 0, invalid("caller_id", "is missing: it is the actor that creates the object")
	case object != 0 && object != caller:
		return 0, denied(caller, "", "may not create in the name of another actor", "give the caller's own id as caller_id")
	}
	return caller, nil
}

// right is what one of a context's lists allows.
type right struct {
	has  func(hero.Context, uint32) bool
	verb string
	list string
}

func mayRead() right { return right{hero.Context.MayRead, "read", "readers, executors or admins"} }
func mayExecute() right {
	return right{hero.Context.MayExecute, "update jobs in", "executors or admins"}
}
func mayAdmin() right { return right{hero.Context.MayAdmin, "change", "admins"} }

// permit tells whether the caller has the right in the context, which must exist.
func (c *Coordinator) permit(ctx context.Context, id, caller uint32, r right) (hero.Context, error) {
	if err := checkContext(id); err != nil {
		return hero.Context{}, err
	}
	space, err := c.context(ctx, id)
	if err != nil || caller == nobody {
		return space, err
	}
	if !r.has(space, caller) {
		return space, denied(caller, space.Key(), "may not "+r.verb+" this context", "ask one of its admins to add the actor to "+r.list)
	}
	return space, nil
}

func (c *Coordinator) context(ctx context.Context, id uint32) (hero.Context, error) {
	space, err := c.db.Context(ctx, id)
	if errors.Is(err, redisdb.ErrNotFound) {
		return space, notFound(hero.ContextKey(id), "create it with context.create")
	}
	return space, err
}
