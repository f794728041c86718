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
	// DefaultMaxPayload is the default limit of NATS.
	DefaultMaxPayload = 1 << 20
	// MaxRaw bounds the part of an unreadable message that is kept for operators.
	MaxRaw = 4 << 10
)

// NATS headers are case-sensitive.
const (
	headerMsgID       = "Nats-Msg-Id"
	headerTraceparent = "traceparent"
	headerContentType = "content-type"
	// headerTaken is set in an echo: the time at which this process applied the result, in RFC 3339
	// with nanoseconds.
	headerTaken = "Edda-Taken"
)

// Codec encodes and decodes messages. The zero value works.
type Codec struct {
	Grammar
	MaxPayload int // bytes of a message's body; DefaultMaxPayload when zero
	// Mappings read the messages of streams that Edda does not own, by stream.
	Mappings map[string]*Mapping
	// AsCloudEvents are the kinds of work that are written as CloudEvents, of [Outgoing]. Reading
	// does not depend on it.
	AsCloudEvents []string
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
	Time    time.Time // store time
	Member  int       // the place in a batch of CloudEvents, from 1; zero for a whole message
}

// header returns a header by its exact name, or else by its name in any case, for clients that
// rewrite headers.
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

// place is the id of a message without a Nats-Msg-Id.
func (m Message) place() string { return m.member(m.Stream + ":" + strconv.FormatUint(m.Seq, 10)) }

// member qualifies an id of the message by the place in a batch, whose members share the message.
func (m Message) member(id string) string {
	if m.Member == 0 {
		return id
	}
	return id + ":" + strconv.Itoa(m.Member)
}

// refusal says why a message cannot be an input.
type refusal struct {
	reason string // one of edda's Dead constants
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(reason, format string, args ...any) error {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// unmarshal decodes an envelope, which must be a JSON object.
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

// text is a string field of an envelope. It accepts a number or a bool as its JSON text, and null
// as absent.
type text string

func (t *text) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case 'n':
		return nil
	case '"':
		if bytes.IndexByte(data, '\\') < 0 && utf8.Valid(data) { // the usual case
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

// timestamp is a producer's timestamp. An unreadable one is ignored, because no decision depends on
// it.
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

// metadata is the metadata of all messages. Each kind uses some of the fields.
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
	// EffectVersion is read in commands only, so any value is valid elsewhere.
	EffectVersion json.RawMessage `json:"effect_version,omitempty"`
	Priority      text            `json:"priority,omitempty"`
	CommandID     text            `json:"command_id,omitempty"`
	Outcome       text            `json:"outcome,omitempty"`
	ParentSaga    text            `json:"parent_saga,omitempty"`
	ParentKey     text            `json:"parent_key,omitempty"`
	By            text            `json:"by,omitempty"`
	Why           text            `json:"why,omitempty"`
}

// priorityHigh marks work with high priority.
const priorityHigh = "high"

// trace returns the traceparent header, or else the trace id of the metadata.
func (m Message) trace(md metadata) string {
	if t := m.header(headerTraceparent); t != "" {
		return t
	}
	return string(md.Trace)
}

// payload returns nil for null.
func payload(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// Excerpt returns the beginning of a message as a JSON string.
func Excerpt(data []byte) json.RawMessage {
	s := strings.ToValidUTF8(string(data[:min(len(data), MaxRaw)]), "\uFFFD")
	raw, err := jsonvalue.Encode(s)
	if err != nil {
		return nil
	}
	return raw
}
