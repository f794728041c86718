package hero

import "strconv"

// SupervisorTopic is the Mycelium topic that supervisors listen on.
const SupervisorTopic = "supervisor.rpc"

// RunnerType is the kind of runtime; it is never stored.
type RunnerType string

// The documented runner types.
const (
	RunnerV      RunnerType = "v"
	RunnerPython RunnerType = "python"
	RunnerOSIS   RunnerType = "osis"
	RunnerRust   RunnerType = "rust"
)

// Runner is a worker of a context, or a supervisor of workers.
type Runner struct {
	ID      uint32 `json:"id"`
	PubKey  string `json:"pubkey"`  // routed by, before the address
	Address string `json:"address"` // of Mycelium (ip, or mycelium://…), or http(s)://
	Topic   string `json:"topic"`
	Local   bool   `json:"local"`            // takes queue:<type> of its context
	Secret  string `json:"secret,omitempty"` // a supervisor's; never echoed to a client
	// Type is read, and never stored or shown: no document keeps it.
	Type      RunnerType `json:"type,omitempty"`
	CreatedAt uint32     `json:"created_at"`
	UpdatedAt uint32     `json:"updated_at"`
	// Unknown are fields that came with it and that nobody here understands.
	Unknown []string `json:"-"`
	// Unreadable says, in a list, why the hash cannot be read; all else is left out then.
	Unreadable string `json:"unreadable,omitempty"`
}

// Key is the runner's hash in its context's database.
func (r Runner) Key() string { return RunnerKey(r.ID) }

// Supervisor tells whether it stands for a supervisor: it has a secret or a URL.
func (r Runner) Supervisor() bool { return r.Secret != "" || isURL(r.Address) }

// Listens is the topic to send to: its own, else the supervisors', else runner<id>.
func (r Runner) Listens() string {
	switch {
	case r.Topic != "":
		return r.Topic
	case r.Supervisor():
		return SupervisorTopic
	}
	return "runner" + strconv.FormatUint(uint64(r.ID), 10)
}

func (r Runner) hash() *hash {
	h := newHash()
	h.number("id", r.ID)
	h.text("pubkey", r.PubKey)
	h.text("address", r.Address)
	h.text("topic", r.Topic)
	h.truth("local", r.Local)
	h.optional("secret", r.Secret)
	h.number("created_at", r.CreatedAt)
	h.number("updated_at", r.UpdatedAt)
	return h
}

// ReadRunner reads the hash at that key; what it cannot read is a *FieldError.
func ReadRunner(key string, h map[string]string) (Runner, error) {
	r, ids := readKey("runner", key, h, 1)
	return Runner{
		ID:        r.id("id", ids[0]),
		PubKey:    r.text("pubkey"),
		Address:   r.text("address"),
		Topic:     r.text("topic"),
		Local:     r.Truth("local"),
		Secret:    r.text("secret"),
		CreatedAt: r.time("created_at"),
		UpdatedAt: r.time("updated_at"),
	}, r.err
}
