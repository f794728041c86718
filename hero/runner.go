package hero

import "strconv"

// SupervisorTopic is the Mycelium topic that supervisors listen on.
const SupervisorTopic = "supervisor.rpc"

// RunnerType is the kind of runtime that a runner has. It is never stored.
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
	PubKey  string `json:"pubkey"`  // routes before the address does
	Address string `json:"address"` // Mycelium's (an IP, or mycelium://…), or http(s)://
	Topic   string `json:"topic"`
	Local   bool   `json:"local"`            // takes jobs from queue:<type> of its context
	Secret  string `json:"secret,omitempty"` // a supervisor's; never echoed to a client
	// Type is read and never stored or shown: the documents do not keep it.
	Type      RunnerType `json:"type,omitempty"`
	CreatedAt uint32     `json:"created_at"`
	UpdatedAt uint32     `json:"updated_at"`
	// Unknown names the fields that were sent and that Edda does not know.
	Unknown []string `json:"-"`
	// Unreadable is set in a list when the hash cannot be read: the reason. Other fields are empty.
	Unreadable string `json:"unreadable,omitempty"`
}

// Key returns the key of the runner's hash in its context's database.
func (r Runner) Key() string { return RunnerKey(r.ID) }

// Supervisor reports whether the runner is a supervisor: it has a secret or a URL.
func (r Runner) Supervisor() bool { return r.Secret != "" || isURL(r.Address) }

// Listens returns the topic to send to: the runner's own, else the supervisors', else runner<id>.
func (r Runner) Listens() string {
	switch {
	case r.Topic != "":
		return r.Topic
	case r.Supervisor():
		return SupervisorTopic
	}
	return "runner" + strconv.FormatUint(uint64(r.ID), 10)
}

func (r Runner) hash() *fields { at := newFields(); r.fields(at); return at }

func (r *Runner) fields(at *fields) {
	at.number("id", &r.ID)
	at.text("pubkey", &r.PubKey)
	at.text("address", &r.Address)
	at.text("topic", &r.Topic)
	at.truth("local", &r.Local)
	at.optional("secret", &r.Secret)
	at.time("created_at", &r.CreatedAt)
	at.time("updated_at", &r.UpdatedAt)
}

// ReadRunner reads the hash at the key. A field that it cannot read is a *FieldError.
func ReadRunner(key string, h map[string]string) (r Runner, err error) {
	from := readKey("runner", key, h, "id")
	r.fields(&fields{from: from})
	return r, from.err
}

// UnmarshalJSON reads a runner and notes unknown fields.
func (r *Runner) UnmarshalJSON(raw []byte) error {
	type plain Runner
	return understand(raw, (*plain)(r), &r.Unknown, runnerNames())
}
