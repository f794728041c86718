package coordinator

import "context"

// enter permits the caller to write in the context and waits for the context's
// turn, which must be given back.
func (c *Coordinator) enter(ctx context.Context, id uint32, w who, r right, object ...uint32) (back func(), err error) {
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
	return c.turns.take(ctx, id)
}

// see permits the caller what needs no turn with the object.
func (c *Coordinator) see(ctx context.Context, p in, r right) error {
	if err := checkContext(p.ContextID); err != nil {
		return err
	}
	if err := checkID("id", p.ID); err != nil {
		return err
	}
	caller, err := c.caller(ctx, p.who)
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
	return c.see(ctx, in{ContextID: p.ContextID, ID: p.ID, who: p.who()}, mayRead())
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
	caller, err := c.caller(ctx, p.who)
	if err != nil {
		return err
	}
	_, err = c.permit(ctx, p.ContextID, caller, mayRead())
	return err
}
