package coordinator

import (
	"context"
	"slices"

	"edda/hero/jsonrpc"
)

// methods returns all methods of the coordinator. The server and its OpenRPC document are
// made from them.
func (c *Coordinator) methods() []jsonrpc.Method {
	return slices.Concat(c.actorMethods(), c.contextMethods(), c.runnerMethods(), c.jobMethods(), c.flowMethods(), c.messageMethods())
}

// callerParams names the caller of a call to a server without tokens. actor_id goes before
// caller_id, which may be a part of the object's key.
type callerParams struct {
	ActorID  uint32 `json:"actor_id,omitempty"`
	CallerID uint32 `json:"caller_id,omitempty"`
}

// byID names a global object.
type byID struct {
	ID uint32 `json:"id"`
	callerParams
}

// in names an object of a context.
type in struct {
	ContextID uint32 `json:"context_id"`
	ID        uint32 `json:"id"`
	callerParams
}

// owned names an object whose key has its creator.
type owned struct {
	ContextID uint32 `json:"context_id"`
	CallerID  uint32 `json:"caller_id"`
	ID        uint32 `json:"id"`
	ActorID   uint32 `json:"actor_id,omitempty"`
}

func (p owned) caller() callerParams { return callerParams{ActorID: p.ActorID, CallerID: p.CallerID} }

// globalList asks for a page of actors or contexts.
type globalList struct {
	page
	callerParams
}

// contextList asks for a page of the objects of a context.
type contextList struct {
	ContextID uint32 `json:"context_id"`
	page
	callerParams
}

// define makes a method whose calls have a deadline and answer documented errors.
func define[P, R any](c *Coordinator, name, summary, wrapper string, errors []int, call func(context.Context, P) (R, error)) jsonrpc.Method {
	o := jsonrpc.MethodOptions{Wrapper: wrapper, Errors: append([]int{jsonrpc.InvalidParams, jsonrpc.StorageError, jsonrpc.PermissionDenied}, errors...)}
	return jsonrpc.Define(name, summary, o, func(ctx context.Context, p P) (R, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		r, err := call(ctx, p)
		return r, c.answer(name, err)
	})
}

// Methods returns the names of all methods, rpc.discover among them.
func Methods() []string {
	return append(names((&Coordinator{}).methods()), "rpc.discover")
}

// loadOwned loads an object whose key has its creator, for a caller that may read it.
func loadOwned[T any](ctx context.Context, c *Coordinator, p owned, load func(ctx context.Context, context, caller, id uint32) (T, error), redact func(redaction, T) T) (object T, err error) {
	if err := c.seeOwned(ctx, p, mayRead()); err != nil {
		return object, err
	}
	v, err := c.redaction(ctx, p.ContextID, p.caller())
	if err != nil {
		return object, err
	}
	object, err = load(ctx, p.ContextID, p.CallerID, p.ID)
	return redact(v, object), err
}

// remove deletes an object of a context under the context's lock, for an admin. invalid is
// the error of the call's parameters.
func (c *Coordinator) remove(ctx context.Context, id uint32, w callerParams, invalid error, del func() error) (bool, error) {
	if invalid != nil {
		return false, invalid
	}
	unlock, err := c.enter(ctx, id, w, mayAdmin())
	if err != nil {
		return false, err
	}
	defer unlock()
	err = del()
	return err == nil, err
}
