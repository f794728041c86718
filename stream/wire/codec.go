package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/internal/jsonvalue"
)

const (
	// DefaultMaxPayload is what NATS itself allows unless told otherwise.
	DefaultMaxPayload = 1 << 20
	// MaxRaw bounds how much of a message that cannot be read is kept for people.
	MaxRaw = 4 << 10
)

// NATS headers keep their case and are looked up as they are.
const (
	headerMsgID       = "Nats-Msg-Id"
	headerTraceparent = "traceparent"
	headerContentType = "content-type"
	// headerTaken is in an echo: when the sagas of the process took the result, in RFC 3339
	// with nanoseconds.
	headerTaken = "Edda-Taken"
)

// Codec turns messages into values and back. The zero value works.
type Codec struct {
	Grammar
	MaxPayload int // bytes of a message's body; DefaultMaxPayload when zero
}

func (c Codec) maxPayload() int {
	if c.MaxPayload > 0 {
		return c.MaxPayload
	}
	return DefaultMaxPayload
}

// Message is a message as JetStream stored it.
type Message struct {
	Subject string
	Header  nats.Header
	Data    []byte
	Stream  string
	Seq     uint64
	Time    time.Time // when it was stored
}

// header finds a header; names are compared as they are, then, for clients that
// rewrite them, without regard to case.
func (m Message) header(name string) string {
	if v, ok := m.Header[name]; ok && len(v) > 0 {
		return v[0]
	}
	for k, v := range m.Header {
		if len(v) > 0 && strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}

// place is the id of a message that has no other.
func (m Message) place() string { return m.Stream + ":" + strconv.FormatUint(m.Seq, 10) }

// refusal is why a message cannot be an input.
type refusal struct {
	reason string // one of edda's Dead constants
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(reason, format string, args ...any) error {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// unmarshal reads an envelope, which is always one JSON object.
func unmarshal[T any](data []byte, v *T) error {
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	if len(trimmed) == 0 {
		return refuse(edda.DeadUndecodable, "the body is empty")
	}
	if err := jsonvalue.Unmarshal(data, v); err != nil {
		return refuse(edda.DeadUndecodable, "the body is not an envelope: %v", err)
	}
	if trimmed[0] != '{' {
		return refuse(edda.DeadUndecodable, "the body is not a JSON object")
	}
	return nil
}

// text is a string field of an envelope that others write: a number or a bool
// is taken as its text, null as absent.
type text string

func (t *text) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case 'n':
		return nil
	case '"':
		if bytes.IndexByte(data, '\\') < 0 && utf8.Valid(data) { // as it stands, which most do
			*t = text(data[1 : len(data)-1])
			return nil
		}
		return json.Unmarshal(data, (*string)(t))
	case '{', '[':
		return fmt.Errorf("%.20s… is not a text", data)
	}
	*t = text(data)
	return nil
}

// timestamp is a producer's timestamp. One that cannot be read is left out: no
// decision rests on it, and the event is worth more.
type timestamp struct{ time.Time }

func (m *timestamp) UnmarshalJSON(data []byte) error {
	var s text
	if s.UnmarshalJSON(data) != nil {
		return nil
	}
	if t, err := time.Parse(time.RFC3339Nano, string(s)); err == nil {
		m.Time = t.UTC()
	}
	return nil
}

// metadata is what goes with every message. Each kind uses some of it.
type metadata struct {
	Correlation    text      `json:"correlation_id,omitempty"`
	Trace          text      `json:"trace_id,omitempty"`
	Causation      text      `json:"causation_id,omitempty"`
	Saga           text      `json:"saga,omitempty"`
	Key            text      `json:"key,omitempty"`
	Step           text      `json:"step,omitempty"`
	Attempt        int       `json:"attempt,omitempty"`
	NotAfter       time.Time `json:"not_after,omitzero"`
	IdempotencyKey text      `json:"idempotency_key,omitempty"`
	// EffectVersion is a command's, and read of commands alone: what it is
	// elsewhere harms nothing.
	EffectVersion json.RawMessage `json:"effect_version,omitempty"`
	Priority      text            `json:"priority,omitempty"`
	CommandID     text            `json:"command_id,omitempty"`
	Outcome       text            `json:"outcome,omitempty"`
	ParentSaga    text            `json:"parent_saga,omitempty"`
	ParentKey     text            `json:"parent_key,omitempty"`
	By            text            `json:"by,omitempty"`
	Why           text            `json:"why,omitempty"`
}

// priorityHigh is the word for work that goes first.
const priorityHigh = "high"

// trace is the header's traceparent, else what the metadata says.
func (m Message) trace(md metadata) string {
	if t := m.header(headerTraceparent); t != "" {
		return t
	}
	return string(md.Trace)
}

// payload is a field's raw JSON; null is the same as absent.
func payload(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// Excerpt keeps the beginning of a message for people, as a JSON string.
func Excerpt(data []byte) json.RawMessage {
	s := strings.ToValidUTF8(string(data[:min(len(data), MaxRaw)]), "\uFFFD")
	raw, err := jsonvalue.Encode(s)
	if err != nil {
		return nil
	}
	return raw
}
