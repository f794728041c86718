package edda

import "time"

// Mark is the last message that was published to a stream and acknowledged by the server.
type Mark struct {
	Stream string    `json:"stream"`
	Seq    uint64    `json:"seq"`
	ID     string    `json:"id"`   // the publisher's id of the message
	Time   time.Time `json:"time"` // of the acknowledgement
	// Missing counts the gaps in the stream's sequence at the last check.
	Missing int `json:"missing,omitempty"`
}

// Checkpoint is the position in one stream: every message up to Seq is durably
// handled. Time and Created recognise the stream again after a restart.
type Checkpoint struct {
	Stream  string    `json:"stream"`
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`    // when the message at Seq was stored
	Created time.Time `json:"created"` // when the stream was created
}

// ScheduleState is how far one schedule of one saga has come for one tenant.
type ScheduleState struct {
	Tenant string    `json:"tenant,omitempty"`
	Saga   string    `json:"saga"`
	Name   string    `json:"name"`
	Last   time.Time `json:"last"` // due time of the last start, or when the schedule was first seen
}

// Manifest is the text of one version of a saga, kept as long as an instance
// may need it.
type Manifest struct {
	Saga    string    `json:"saga"`
	Version int       `json:"version"`
	Hash    string    `json:"hash"`
	Text    string    `json:"text"` // one YAML document
	Loaded  time.Time `json:"loaded"`
	// Idle is since when no instance has needed the text; zero while one does, and
	// before the first check.
	Idle time.Time `json:"idle,omitzero"`
}
