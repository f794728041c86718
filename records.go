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
	// Partly is set while a batch of CloudEvents behind Seq is handled in part.
	Partly *Partly `json:"partly,omitempty"`
}

// Partly is a position within a batch of CloudEvents: the first Members events of the message
// at Seq are durably handled. Time is when the message was stored, because another message has
// its sequence if the server lost the end of the stream.
type Partly struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Members int       `json:"members"`
}

// Covers reports whether the event is handled.
func (c Checkpoint) Covers(ev *Event) bool {
	if p := c.Partly; p != nil && ev.Seq == p.Seq && ev.Member > 0 && ev.Member <= p.Members && ev.StoredAt().Equal(p.Time) {
		return true
	}
	return ev.Seq <= c.Seq
}

// Last is the sequence of the last message that is handled, at least in part.
func (c Checkpoint) Last() uint64 {
	if c.Partly != nil {
		return c.Partly.Seq
	}
	return c.Seq
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
