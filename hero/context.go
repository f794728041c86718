package hero

import "slices"

// Context is a tenant: a Redis database of its own, whose number is its id, and
// who may do what in it.
type Context struct {
	ID        uint32   `json:"id"`
	Admins    []uint32 `json:"admins"`    // may do anything
	Readers   []uint32 `json:"readers"`   // may read anything
	Executors []uint32 `json:"executors"` // may run jobs: status and result
	CreatedAt uint32   `json:"created_at"`
	UpdatedAt uint32   `json:"updated_at"`
	// Unknown are fields that came with it and that Edda does not know.
	Unknown []string `json:"-"`
	// Unreadable says, in a list, why the hash cannot be read; all else is left out then.
	Unreadable string `json:"unreadable,omitempty"`
}

// Key is the context's hash, in its own database.
func (c Context) Key() string { return ContextKey(c.ID) }

// MayAdmin tells whether the actor may create and delete anything.
func (c Context) MayAdmin(actor uint32) bool { return slices.Contains(c.Admins, actor) }

// MayRead tells whether the actor may read anything. Executors and admins may.
func (c Context) MayRead(actor uint32) bool {
	return c.MayAdmin(actor) || slices.Contains(c.Readers, actor) || slices.Contains(c.Executors, actor)
}

// MayExecute tells whether the actor may update jobs and take them from queues.
func (c Context) MayExecute(actor uint32) bool {
	return c.MayAdmin(actor) || slices.Contains(c.Executors, actor)
}

func (c Context) hash() *hash {
	h := newHash()
	h.number("id", c.ID)
	list(h, "admins", c.Admins)
	list(h, "readers", c.Readers)
	list(h, "executors", c.Executors)
	h.number("created_at", c.CreatedAt)
	h.number("updated_at", c.UpdatedAt)
	return h
}

// ReadContext reads the hash at that key; what it cannot read is a *FieldError.
func ReadContext(key string, h map[string]string) (Context, error) {
	r, ids := readKey("context", key, h, 1)
	return Context{
		ID:        r.id("id", ids[0]),
		Admins:    r.numbers("admins"),
		Readers:   r.numbers("readers"),
		Executors: r.numbers("executors"),
		CreatedAt: r.time("created_at"),
		UpdatedAt: r.time("updated_at"),
	}, r.err
}
