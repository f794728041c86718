package hero

// Actor is an identity that asks for work and administers contexts. Actors are
// global: they live in database 0, under actor:<id>.
type Actor struct {
	ID     uint32 `json:"id"`
	PubKey string `json:"pubkey"` // as Mycelium has it, hexadecimal
	// Address lists where it can be reached: Mycelium addresses or URLs.
	Address   []string `json:"address"`
	CreatedAt uint32   `json:"created_at"` // Unix seconds
	UpdatedAt uint32   `json:"updated_at"`
	// Unknown are fields that came with it and that nobody here understands.
	Unknown []string `json:"-"`
	// Unreadable says, in a list, why the hash cannot be read; all else is left out then.
	Unreadable string `json:"unreadable,omitempty"`
}

// Key is the actor's hash in database 0.
func (a Actor) Key() string { return ActorKey(a.ID) }

func (a Actor) hash() *hash {
	h := newHash()
	h.number("id", a.ID)
	h.text("pubkey", a.PubKey)
	list(h, "address", a.Address)
	h.number("created_at", a.CreatedAt)
	h.number("updated_at", a.UpdatedAt)
	return h
}

// ReadActor reads the hash at that key; what it cannot read is a *FieldError.
func ReadActor(key string, h map[string]string) (Actor, error) {
	r, ids := readKey("actor", key, h, 1)
	return Actor{
		ID:        r.id("id", ids[0]),
		PubKey:    r.text("pubkey"),
		Address:   r.Texts("address"),
		CreatedAt: r.time("created_at"),
		UpdatedAt: r.time("updated_at"),
	}, r.err
}
