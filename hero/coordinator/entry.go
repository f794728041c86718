package coordinator

import "context"

// enter checks that the caller may write in the context and locks the context. The caller
// must unlock it.
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

// see checks that the caller has a right that needs no lock.
func (c *Coordinator) see(ctx context.Context, p in, r right) error {
	if err := checkContext(p.ContextID); err != nil {
		return err
	}
	if err := checkID("id", p.ID); err != nil {
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
func (c *Coordinator) seeOwned(ctx context.Context, p owned) error {
	if err := p.check(); err != nil {
		return err
	}
	return c.see(ctx, in{ContextID: p.ContextID, ID: p.ID, callerParams: p.caller()}, mayRead())
}

func (p owned) check() error {
	if err := checkID("caller_id", p.CallerID); err != nil {
		return err
	}
	return checkID("id", p.ID)
}

// browse permits the caller to list objects of the context.
func (c *Coordinator) browse(ctx context.Context, p listing) error {
	if err := checkContext(p.ContextID); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	caller, err := c.caller(ctx, p.callerParams)
	if err != nil {
		return err
	}
	_, err = c.permit(ctx, p.ContextID, caller, mayRead())
	return err
}
