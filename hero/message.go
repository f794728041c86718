package hero

// MessageType is the kind of a message's content.
type MessageType string

// The documented message types, and MessageResult, which is Edda's own.
const (
	MessageJob    MessageType = "job"
	MessageChat   MessageType = "chat"
	MessageMail   MessageType = "mail"
	MessageResult MessageType = "result"
)

// MessageFormat is the markup of a message's text.
type MessageFormat string

// The documented formats.
const (
	FormatHTML MessageFormat = "html"
	FormatText MessageFormat = "text"
	FormatMD   MessageFormat = "md"
)

// MessageStatus is the status of a message.
type MessageStatus string

// The statuses of a message. MessageError and MessageProcessed are final.
const (
	MessageDispatched   MessageStatus = "dispatched"
	MessageAcknowledged MessageStatus = "acknowledged" // received
	MessageError        MessageStatus = "error"
	MessageProcessed    MessageStatus = "processed" // its result arrived
)

// Ended reports whether the status is final.
func (s MessageStatus) Ended() bool { return s == MessageError || s == MessageProcessed }

// MayBecome reports whether the transition is legal: forward, never back.
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

// The lists of a context's messages hold message keys.
const (
	MsgOut            = "msg_out"             // to be sent
	MsgOutCoordinator = "msg_out_coordinator" // taken by the router and not yet delivered
	MsgIn             = "msg_in"              // arrived
)

// Message carries text, jobs or a result from one actor to another.
type Message struct {
	ID            uint32        `json:"id"`
	CallerID      uint32        `json:"caller_id"` // the sending actor
	ContextID     uint32        `json:"context_id"`
	Message       string        `json:"message"`
	MessageType   MessageType   `json:"message_type"`
	MessageFormat MessageFormat `json:"message_format_type"`
	Timeout       uint32        `json:"timeout"`        // seconds until an undelivered message counts as lost
	TimeoutAck    uint32        `json:"timeout_ack"`    // seconds for the receiver to acknowledge
	TimeoutResult uint32        `json:"timeout_result"` // seconds for a result
	Job           []Job         `json:"job"`            // embedded, normally one
	Nodes         []FlowNode    `json:"nodes"`          // route the message when present
	FlowID        uint32        `json:"flow_id,omitempty"`
	Logs          []Log         `json:"logs"`
	// TransportID is the id of the Mycelium message that carried this one.
	TransportID     string        `json:"transport_id,omitempty"`
	TransportStatus string        `json:"transport_status,omitempty"`
	CreatedAt       uint32        `json:"created_at"`
	UpdatedAt       uint32        `json:"updated_at"`
	Status          MessageStatus `json:"status"`

	// The following fields are Edda's own, left out where empty.

	// TargetContext is the context in which a job runs, or whose msg_in gets a chat,
	// mail or result. The router fills it in.
	TargetContext uint32 `json:"target_context,omitempty"`
	// Topic is the Mycelium topic that the router chose.
	Topic string `json:"topic,omitempty"`
	// To is the actor that gets a chat, mail or result.
	To uint32 `json:"to,omitempty"`
	// ReplyTo is the key of the message that this one answers.
	ReplyTo string `json:"reply_to,omitempty"`
	// Attempt numbers the dispatches of one node of a flow, from 1.
	Attempt uint32 `json:"attempt,omitempty"`
	// Origin is the sender's context and key of a message that arrived: <context>/<key>.
	Origin string `json:"origin,omitempty"`
	// Via is the Mycelium address that sent a message and gets its result; empty within
	// one Redis.
	Via string `json:"via,omitempty"`
	// Unknown names the fields that were sent and that Edda does not know.
	Unknown []string `json:"-"`
	// Unreadable is set in a list when the hash cannot be read: the reason. Other fields are empty.
	Unreadable string `json:"unreadable,omitempty"`
}

// Key returns the key of the message's hash in its context's database.
func (m Message) Key() string { return MessageKey(m.CallerID, m.ID) }

func (m Message) hash() *fields { at := newFields(); m.fields(at); return at }

func (m *Message) fields(at *fields) {
	at.number("id", &m.ID)
	at.number("caller_id", &m.CallerID)
	at.number("context_id", &m.ContextID)
	at.text("message", &m.Message)
	oneOf(at, "message_type", &m.MessageType, MessageJob, ParseMessageType)
	oneOf(at, "message_format_type", &m.MessageFormat, FormatText, ParseMessageFormat)
	at.number("timeout", &m.Timeout)
	at.number("timeout_ack", &m.TimeoutAck)
	at.number("timeout_result", &m.TimeoutResult)
	field(at, "job", &m.Job, (*HashReader).jobs, listText(whole(m.Job)), false)
	field(at, "nodes", &m.Nodes, (*HashReader).nodes, listText(wholeNodes(m.Nodes)), false)
	field(at, "logs", &m.Logs, (*HashReader).logs, listText(m.Logs), false)
	at.optionalNumber("flow_id", &m.FlowID)
	at.optional("transport_id", &m.TransportID)
	at.optional("transport_status", &m.TransportStatus)
	at.time("created_at", &m.CreatedAt)
	at.time("updated_at", &m.UpdatedAt)
	oneOf(at, "status", &m.Status, MessageDispatched, ParseMessageStatus)
	at.optionalNumber("target_context", &m.TargetContext)
	at.optional("topic", &m.Topic)
	at.optionalNumber("to", &m.To)
	at.optional("reply_to", &m.ReplyTo)
	at.optionalNumber("attempt", &m.Attempt)
	at.optional("origin", &m.Origin)
	at.optional("via", &m.Via)
}

// ReadMessage reads the hash at the key. A field that it cannot read is a *FieldError.
func ReadMessage(key string, h map[string]string) (m Message, err error) {
	r := readKey("message", key, h, "caller_id", "id")
	m.fields(&fields{from: r})
	return m, r.err
}

// UnmarshalJSON reads a message and notes unknown fields.
func (m *Message) UnmarshalJSON(raw []byte) error {
	type plain Message
	return understand(raw, (*plain)(m), &m.Unknown, messageNames())
}

// ParseMessageType reads a type in any spelling. A script type, which older writers put
// there, means a job.
func ParseMessageType(s string) (MessageType, error) {
	if _, err := word("", s, ScriptOSIS, ScriptSAL, ScriptV, ScriptPython); err == nil {
		return MessageJob, nil
	}
	return word("type of a message", s, MessageJob, MessageChat, MessageMail, MessageResult)
}

// UnmarshalText reads the type as ParseMessageType does.
func (t *MessageType) UnmarshalText(text []byte) error { return decode(t, text, ParseMessageType) }

// ParseMessageFormat reads a format in any spelling.
func ParseMessageFormat(s string) (MessageFormat, error) {
	return word("format of a message", s, FormatHTML, FormatText, FormatMD)
}

// UnmarshalText reads the format as ParseMessageFormat does.
func (f *MessageFormat) UnmarshalText(text []byte) error { return decode(f, text, ParseMessageFormat) }

// ParseMessageStatus reads a status in any spelling.
func ParseMessageStatus(s string) (MessageStatus, error) {
	return word("status of a message", s, MessageDispatched, MessageAcknowledged, MessageError, MessageProcessed)
}

// UnmarshalText reads the status as ParseMessageStatus does.
func (s *MessageStatus) UnmarshalText(text []byte) error { return decode(s, text, ParseMessageStatus) }

// MaxLogs bounds the log lines that one message keeps. The oldest are dropped first.
const MaxLogs = 1000

// Log is one line about a message.
type Log struct {
	Time   uint32 `json:"time"`  // Unix seconds
	Level  string `json:"level"` // debug, info, warn or error
	Source string `json:"source"`
	Text   string `json:"text"`
}

// logs reads a list of log lines. A plain text is a line without a time.
func (r *HashReader) logs(name string) []Log {
	out := []Log{}
	r.objects(name, "text", func(r *HashReader) {
		out = append(out, Log{Time: r.Number("time"), Level: r.text("level"), Source: r.text("source"), Text: r.text("text")})
	})
	return out
}
