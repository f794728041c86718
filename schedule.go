package edda

import "time"

// ScheduleState is how far one schedule of one saga has come for one tenant.
type ScheduleState struct {
	Tenant string    `json:"tenant,omitempty"`
	Saga   string    `json:"saga"`
	Name   string    `json:"name"`
	Last   time.Time `json:"last"` // due time of the last start; or when it was first seen
}

// Manifest is the text of one version of a saga, kept as long as an instance
// may need it.
type Manifest struct {
	Saga    string    `json:"saga"`
	Version int       `json:"version"`
	Hash    string    `json:"hash"`
	Text    string    `json:"text"` // one YAML document
	Loaded  time.Time `json:"loaded"`
	// Idle is since when nothing has needed the text; zero: something does, or
	// nobody has looked.
	Idle time.Time `json:"idle,omitzero"`
}
