package coordinator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"net/http"
	"slices"

	"edda/access"
	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/internal/httpserver"
)

// minToken is the least length of a token, which nobody can guess.
const minToken = 16

// newTokens joins tokens in plain text and tokens that are hashes already.
func newTokens(given map[string]uint32, hashes map[[sha256.Size]byte]uint32) access.SecretHashes[uint32] {
	t := access.SecretHashes[uint32]{}
	maps.Copy(t, hashes)
	for token, actor := range given {
		t.Add(token, actor)
	}
	return t
}

// callerKey is the key of the token's actor in a call's context.
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

// noCaller is the caller of a call that names none, if the server has no tokens: any client
// that can reach it.
const noCaller = 0

// caller returns the calling actor: the token's, or, without tokens, the first one that the
// call or else its object names.
func (c *Coordinator) caller(ctx context.Context, w callerParams, object ...uint32) (uint32, error) {
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
	return noCaller, nil
}

// creator returns the caller of a call that creates an object. The object's caller_id, if
// given, must be the caller.
func (c *Coordinator) creator(ctx context.Context, w callerParams, object uint32) (uint32, error) {
	caller, err := c.caller(ctx, w, object)
	switch {
	case err != nil:
		return 0, err
	case caller == noCaller:
		return 0, invalid("caller_id", "is missing: it is the actor that creates the object")
	case object != 0 && object != caller:
		return 0, denied(caller, "", "may not create in the name of another actor", "give the caller's own id as caller_id")
	}
	return caller, nil
}

// right is a permission in a context.
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

// permit checks that the context exists and the caller has the right in it.
func (c *Coordinator) permit(ctx context.Context, id, caller uint32, r right) (hero.Context, error) {
	if err := checkContext(id); err != nil {
		return hero.Context{}, err
	}
	space, err := c.context(ctx, id)
	if err != nil || caller == noCaller {
		return space, err
	}
	if !r.has(space, caller) {
		return space, denied(caller, space.Key(), "may not "+r.verb+" this context", "ask one of its admins to add the actor to "+r.list)
	}
	return space, nil
}

func (c *Coordinator) context(ctx context.Context, id uint32) (hero.Context, error) {
	space, err := c.db.Context(ctx, id)
	return space, orNotFound(err, hero.ContextKey(id), "create it with context.create")
}

// enter checks that the caller has the right in the context, and locks the context. The
// caller of enter must unlock it.
func (c *Coordinator) enter(ctx context.Context, id uint32, w callerParams, r right, object ...uint32) (unlock func(), err error) {
	if err := checkContext(id); err != nil {
		return nil, err
	}
	caller, err := c.caller(ctx, w, object...)
	if err != nil {
		return nil, err
	}
	if _, err := c.permit(ctx, id, caller, r); err != nil {
		return nil, err
	}
	return c.locks.lock(ctx, id)
}

// see checks that the caller has the right in the context of an object. It takes no lock.
func (c *Coordinator) see(ctx context.Context, p in, r right) error {
	if err := cmp.Or(checkContext(p.ContextID), checkID("id", p.ID)); err != nil {
		return err
	}
	caller, err := c.caller(ctx, p.callerParams)
	if err != nil {
		return err
	}
	_, err = c.permit(ctx, p.ContextID, caller, r)
	return err
}

// seeOwned is see for an object whose key has its creator.
func (c *Coordinator) seeOwned(ctx context.Context, p owned, r right) error {
	if err := p.check(); err != nil {
		return err
	}
	return c.see(ctx, in{ContextID: p.ContextID, ID: p.ID, callerParams: p.caller()}, r)
}

func (p owned) check() error {
	return cmp.Or(checkID("caller_id", p.CallerID), checkID("id", p.ID))
}

// browse checks that the caller may list objects of the context, and returns what hides
// secrets from it.
func (c *Coordinator) browse(ctx context.Context, p contextList) (redaction, error) {
	if err := cmp.Or(checkContext(p.ContextID), p.check()); err != nil {
		return redaction{}, err
	}
	caller, err := c.caller(ctx, p.callerParams)
	if err != nil {
		return redaction{}, err
	}
	if _, err = c.permit(ctx, p.ContextID, caller, mayRead()); err != nil {
		return redaction{}, err
	}
	return c.redaction(ctx, p.ContextID, p.callerParams)
}

// redaction hides the values of secret variables from callers that may only read. Executors
// and admins need them, and the object's creator knows them.
type redaction struct {
	patterns []string
	caller   uint32
	off      bool
}

// redaction returns the redaction for a caller that may read the context.
func (c *Coordinator) redaction(ctx context.Context, id uint32, w callerParams) (redaction, error) {
	caller, err := c.caller(ctx, w)
	if err != nil || caller == noCaller { // a call without a caller has all rights
		return redaction{off: true}, err
	}
	space, err := c.context(ctx, id)
	return redaction{patterns: c.options.Secrets, caller: caller, off: space.MayExecute(caller)}, err
}

func (v redaction) job(j hero.Job) hero.Job {
	if v.off || j.CallerID == v.caller {
		return j
	}
	j.EnvVars, j.OwnEnv = hero.MaskSecrets(v.patterns, j.EnvVars), hero.MaskSecrets(v.patterns, j.OwnEnv)
	return j
}

func (v redaction) flow(f hero.Flow) hero.Flow {
	if v.off || f.CallerID == v.caller {
		return f
	}
	f.EnvVars = hero.MaskSecrets(v.patterns, f.EnvVars)
	return f
}

func (v redaction) message(m hero.Message) hero.Message {
	if v.off || m.CallerID == v.caller {
		return m
	}
	m.Job = slices.Clone(m.Job)
	for i := range m.Job {
		m.Job[i] = v.job(m.Job[i])
	}
	return m
}
