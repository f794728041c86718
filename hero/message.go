package hero

import "cmp"

// MessageType says what a message carries.
type MessageType string

// The documented message types, and the one that carries a result back.
const (
	MessageJob    MessageType = "job"
	MessageChat   MessageType = "chat"
	MessageMail   MessageType = "mail"
	MessageResult MessageType = "result"
)

// QueueSuffix is the type's word.
func (t MessageType) QueueSuffix() string { return string(t) }

// MessageFormat is how a message's text is written.
type MessageFormat string

// The documented formats.
const (
	FormatHTML MessageFormat = "html"
	FormatText MessageFormat = "text"
	FormatMD   MessageFormat = "md"
)

// MessageStatus is where a message stands.
type MessageStatus string

// The statuses of a message. The last two are ends.
const (
	MessageDispatched   MessageStatus = "dispatched"
	MessageAcknowledged MessageStatus = "acknowledged" // the receiver has it
	MessageError        MessageStatus = "error"
	MessageProcessed    MessageStatus = "processed" // its result is in
)

// Ended tells whether the status is an end.
func (s MessageStatus) Ended() bool { return s == MessageError || s == MessageProcessed }

// MayBecome tells whether the step is legal: forward, never back.
func (s MessageStatus) MayBecome(next MessageStatus) bool {
	switch s {
	case next, MessageDispatched:
		return true
	case MessageAcknowledged:
		return next.Ended()
	}
	return false
}

// Transport statuses of a message, as transport_status holds them.
const (
	TransportQueued    = "queued"
	TransportSent      = "sent"
	TransportDelivered = "delivered"
	TransportRead      = "read"
	TransportFailed    = "failed"
)

// The lists of a context's messages. They hold message keys.
const (
	MsgOut            = "msg_out"             // to be sent
	MsgOutCoordinator = "msg_out_coordinator" // taken by the router, not yet delivered
	MsgIn             = "msg_in"              // arrived
)

// Message is the unit that travels.
type Message struct {
	ID            uint32        `json:"id"`
	CallerID      uint32        `json:"caller_id"` // the actor who sends it
	ContextID     uint32        `json:"context_id"`
	Message       string        `json:"message"`
	MessageType   MessageType   `json:"message_type"`
	MessageFormat MessageFormat `json:"message_format_type"`
	Timeout       uint32        `json:"timeout"`        // seconds until it counts as lost when not delivered
	TimeoutAck    uint32        `json:"timeout_ack"`    // seconds for the receiver to acknowledge
	TimeoutResult uint32        `json:"timeout_result"` // seconds for a result
	Job           []Job         `json:"job"`            // embedded, normally one
	Nodes         []FlowNode    `json:"nodes"`          // routed by when present
	FlowID        uint32        `json:"flow_id,omitempty"`
	Logs          []Log         `json:"logs"`
	// TransportID is the id of the Mycelium message that carried it.
	TransportID     string        `json:"transport_id,omitempty"`
	TransportStatus string        `json:"transport_status,omitempty"`
	CreatedAt       uint32        `json:"created_at"`
	UpdatedAt       uint32        `json:"updated_at"`
	Status          MessageStatus `json:"status"`
	// What follows are fields of Edda's own, left out where empty.

	// TargetContext is the context a job is to run in, or whose msg_in a chat,
	// mail or result is for; the router fills it in.
	TargetContext uint32 `json:"target_context,omitempty"`
	// Topic is where it goes, as routed.
	Topic string `json:"topic,omitempty"`
	// To is the actor that chat, mail and results are for.
	To uint32 `json:"to,omitempty"`
	// ReplyTo is the key of the message that this one answers.
	ReplyTo string `json:"reply_to,omitempty"`
	// Attempt numbers the dispatches of one node of a flow, from 1.
	Attempt uint32 `json:"attempt,omitempty"`
	// Origin is where a message that arrived was sent from: <context>/<key>.
	Origin string `json:"origin,omitempty"`
	// Via is the address of Mycelium that a message came from, and that its result
	// goes to; empty within one Redis.
	Via string `json:"via,omitempty"`
	// Unknown are fields that came with it and that nobody here understands.
	Unknown []string `json:"-"`
	// Unreadable says, in a list, why the hash cannot be read; all else is left out then.
	Unreadable string `json:"unreadable,omitempty"`
}

// Key is the message's hash in its context's database.
func (m Message) Key() string { return MessageKey(m.CallerID, m.ID) }

func (m Message) hash() *hash {
	h := newHash()
	h.number("id", m.ID)
	h.number("caller_id", m.CallerID)
	h.number("context_id", m.ContextID)
	h.text("message", m.Message)
	h.text("message_type", string(cmp.Or(m.MessageType, MessageJob)))
	h.text("message_format_type", string(cmp.Or(m.MessageFormat, FormatText)))
	h.number("timeout", m.Timeout)
	h.number("timeout_ack", m.TimeoutAck)
	h.number("timeout_result", m.TimeoutResult)
	list(h, "job", whole(m.Job))
	list(h, "nodes", wholeNodes(m.Nodes))
	h.optionalNumber("flow_id", m.FlowID)
	list(h, "logs", m.Logs)
	h.optional("transport_id", m.TransportID)
	h.optional("transport_status", m.TransportStatus)
	h.number("created_at", m.CreatedAt)
	h.number("updated_at", m.UpdatedAt)
	h.text("status", string(cmp.Or(m.Status, MessageDispatched)))
	h.optionalNumber("target_context", m.TargetContext)
	h.optional("topic", m.Topic)
	h.optionalNumber("to", m.To)
	h.optional("reply_to", m.ReplyTo)
	h.optionalNumber("attempt", m.Attempt)
	h.optional("origin", m.Origin)
	h.optional("via", m.Via)
	return h
}

// ReadMessage reads the hash at that key; what it cannot read is a *FieldError.
func ReadMessage(key string, h map[string]string) (Message, error) {
	r, ids := readKey("message", key, h, 2)
	return Message{
		CallerID:        r.id("caller_id", ids[0]),
		ID:              r.id("id", ids[1]),
		ContextID:       r.Number("context_id"),
		Message:         r.text("message"),
		MessageType:     one(r, "message_type", MessageJob, ParseMessageType),
		MessageFormat:   one(r, "message_format_type", FormatText, ParseMessageFormat),
		Timeout:         r.Number("timeout"),
		TimeoutAck:      r.Number("timeout_ack"),
		TimeoutResult:   r.Number("timeout_result"),
		Job:             r.jobs("job"),
		Nodes:           r.nodes("nodes"),
		FlowID:          r.Number("flow_id"),
		Logs:            r.logs("logs"),
		TransportID:     r.text("transport_id"),
		TransportStatus: r.text("transport_status"),
		CreatedAt:       r.time("created_at"),
		UpdatedAt:       r.time("updated_at"),
		Status:          one(r, "status", MessageDispatched, ParseMessageStatus),
		TargetContext:   r.Number("target_context"),
		Topic:           r.text("topic"),
		To:              r.Number("to"),
		ReplyTo:         r.text("reply_to"),
		Attempt:         r.Number("attempt"),
		Origin:          r.text("origin"),
		Via:             r.text("via"),
	}, r.err
}

// ParseMessageType reads the word, however it is written. The type of a script,
// which older writers put there, means a job.
func ParseMessageType(s string) (MessageType, error) {
	if _, err := word("", s, ScriptOSIS, ScriptSAL, ScriptV, ScriptPython); err == nil {
		return MessageJob, nil
	}
	return word("type of a message", s, MessageJob, MessageChat, MessageMail, MessageResult)
}

// UnmarshalText reads the word as ParseMessageType does.
func (t *MessageType) UnmarshalText(text []byte) error { return decode(t, text, ParseMessageType) }

// ParseMessageFormat reads the word, however it is written.
func ParseMessageFormat(s string) (MessageFormat, error) {
	return word("format of a message", s, FormatHTML, FormatText, FormatMD)
}

// UnmarshalText reads the word as ParseMessageFormat does.
func (f *MessageFormat) UnmarshalText(text []byte) error { return decode(f, text, ParseMessageFormat) }

// ParseMessageStatus reads the word, however it is written.
func ParseMessageStatus(s string) (MessageStatus, error) {
	return word("status of a message", s, MessageDispatched, MessageAcknowledged, MessageError, MessageProcessed)
}

// UnmarshalText reads the word as ParseMessageStatus does.
func (s *MessageStatus) UnmarshalText(text []byte) error { return decode(s, text, ParseMessageStatus) }
