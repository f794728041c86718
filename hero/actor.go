package hero

import "slices"

// Actor is an identity that asks for work and administers contexts. Actors are
// global: their hashes lie in database 0, under actor:<id>.
type Actor struct {
	ID     uint32 `json:"id"`
	PubKey string `json:"pubkey"` // Mycelium's, hexadecimal
	// Address lists Mycelium addresses or URLs that reach the actor.
	Address   []string `json:"address"`
	CreatedAt uint32   `json:"created_at"` // Unix seconds
	UpdatedAt uint32   `json:"updated_at"`
	// Unknown names the fields that were sent and that Edda does not know.
	Unknown []string `json:"-"`
	// Unreadable is set in a list when the hash cannot be read: the reason. Other fields are empty.
	Unreadable string `json:"unreadable,omitempty"`
}

// Key returns the key of the actor's hash in database 0.
func (a Actor) Key() string { return ActorKey(a.ID) }

func (a Actor) hash() *fields { at := newFields(); a.fields(at); return at }

func (a *Actor) fields(at *fields) {
	at.number("id", &a.ID)
	at.text("pubkey", &a.PubKey)
	at.texts("address", &a.Address)
	at.time("created_at", &a.CreatedAt)
	at.time("updated_at", &a.UpdatedAt)
}

// ReadActor reads the hash at the key. A field that it cannot read is a *FieldError.
func ReadActor(key string, h map[string]string) (a Actor, err error) {
	r := readKey("actor", key, h, "id")
	a.fields(&fields{from: r})
	return a, r.err
}

// UnmarshalJSON reads an actor and notes unknown fields. Its address may be a text.
func (a *Actor) UnmarshalJSON(raw []byte) error {
	type plain Actor
	return understand(raw, (*plain)(a), &a.Unknown, actorNames())
}

// Context is a tenant: it owns the Redis database whose number is its id, and lists the
// actors that have rights in it.
type Context struct {
	ID        uint32   `json:"id"`
	Admins    []uint32 `json:"admins"`    // may do anything
	Readers   []uint32 `json:"readers"`   // may read anything
	Executors []uint32 `json:"executors"` // may run jobs: set status and result
	CreatedAt uint32   `json:"created_at"`
	UpdatedAt uint32   `json:"updated_at"`
	// Unknown names the fields that were sent and that Edda does not know.
	Unknown []string `json:"-"`
	// Unreadable is set in a list when the hash cannot be read: the reason. Other fields are empty.
	Unreadable string `json:"unreadable,omitempty"`
}

// Key returns the key of the context's hash, in its own database.
func (c Context) Key() string { return ContextKey(c.ID) }

// MayAdmin reports whether the actor may create and delete anything.
func (c Context) MayAdmin(actor uint32) bool { return slices.Contains(c.Admins, actor) }

// MayRead reports whether the actor may read anything. Executors and admins may.
func (c Context) MayRead(actor uint32) bool {
	return c.MayExecute(actor) || slices.Contains(c.Readers, actor)
}

// MayExecute reports whether the actor may update jobs and take them from queues.
func (c Context) MayExecute(actor uint32) bool {
	return c.MayAdmin(actor) || slices.Contains(c.Executors, actor)
}

func (c Context) hash() *fields { at := newFields(); c.fields(at); return at }

func (c *Context) fields(at *fields) {
	at.number("id", &c.ID)
	at.numbers("admins", &c.Admins)
	at.numbers("readers", &c.Readers)
	at.numbers("executors", &c.Executors)
	at.time("created_at", &c.CreatedAt)
	at.time("updated_at", &c.UpdatedAt)
}

// ReadContext reads the hash at the key. A field that it cannot read is a *FieldError.
func ReadContext(key string, h map[string]string) (c Context, err error) {
	r := readKey("context", key, h, "id")
	c.fields(&fields{from: r})
	return c, r.err
}

// UnmarshalJSON reads a context and notes unknown fields.
func (c *Context) UnmarshalJSON(raw []byte) error {
	type plain Context
	return understand(raw, (*plain)(c), &c.Unknown, contextNames())
}
