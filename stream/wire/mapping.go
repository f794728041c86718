package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"edda"
	"edda/expression"
	"edda/internal/jsonvalue"
)

// MappingOptions say how events are read from the messages of a stream that Edda does not own. A text
// that begins with = is an expression over [MappingNames], any other is taken as it is; == is a literal
// =. An empty one takes the default, which is the attribute of a CloudEvent, or else:
type MappingOptions struct {
	Source   string   // the name in the configuration
	Stream   string   // the name of the stream
	Subjects []string // filters; none means all subjects
	// ID is the event's id within the stream: the Nats-Msg-Id, or else the sequence and the store time. Unless it
	// is read from the body, a member of a batch has its place in the batch behind it.
	ID string
	// Type is the event's type: the last token of the subject.
	Type string
	// AggregateType is the token before the last one.
	AggregateType string
	// AggregateID is empty.
	AggregateID string
	// Tenant is DefaultTenant.
	Tenant string
	// Time is when the producer says it happened, in RFC 3339; an unreadable one is ignored.
	Time string
	// Correlation is empty.
	Correlation string
	// Data is the body, which must be JSON.
	Data string
	// DefaultTenant is the tenant of events without one, and of messages whose tenant cannot be read. It
	// is empty without tenancy.
	DefaultTenant string
}

// Or returns the options with what is empty replaced by that of others.
func (o MappingOptions) Or(other MappingOptions) MappingOptions {
	o.ID, o.Type = cmp.Or(o.ID, other.ID), cmp.Or(o.Type, other.Type)
	o.AggregateType, o.AggregateID = cmp.Or(o.AggregateType, other.AggregateType), cmp.Or(o.AggregateID, other.AggregateID)
	o.Tenant, o.Time = cmp.Or(o.Tenant, other.Tenant), cmp.Or(o.Time, other.Time)
	o.Correlation, o.Data = cmp.Or(o.Correlation, other.Correlation), cmp.Or(o.Data, other.Data)
	return o
}

// MappingNames are the variables of a mapping's expressions: the subject and its tokens, the headers
// (a map of their first values), the body as JSON, the name of the stream, the sequence in it, and the
// time at which the message was stored.
func MappingNames() []string {
	return []string{"subject", "tokens", "headers", "body", "stream", "seq", "time"}
}

// Mapping reads events from the messages of one stream. It is safe for concurrent use.
type Mapping struct {
	options MappingOptions

	id, eventType, aggregateType, aggregateID, tenant, time, correlation, data *mapped
	body                                                                       bool // an expression reads the body
}

// mapped is the value of one attribute.
type mapped struct {
	field   string // its key in the configuration
	literal string
	program *expression.Program // nil: the literal
}

// reads reports whether the value depends on one of MappingNames.
func (v *mapped) reads(name string) bool {
	return v.program != nil && slices.Contains(v.program.Names(), name)
}

// NewMapping compiles a mapping. The error names each wrong key of the source.
func NewMapping(o MappingOptions) (*Mapping, error) {
	m := &Mapping{options: o}
	var problems []string
	for _, f := range []struct {
		to          **mapped
		field, text string
	}{
		{&m.id, "id", o.ID}, {&m.eventType, "type", o.Type},
		{&m.aggregateType, "aggregate.type", o.AggregateType}, {&m.aggregateID, "aggregate.id", o.AggregateID},
		{&m.tenant, "tenant", o.Tenant}, {&m.time, "time", o.Time}, {&m.correlation, "correlation_id", o.Correlation}, {&m.data, "data", o.Data},
	} {
		if f.text == "" {
			continue
		}
		v, err := compileMapped(f.field, f.text)
		if err != nil {
			problems = append(problems, fmt.Sprintf("sources.%s.%s: %v", o.Source, f.field, err))
			continue
		}
		*f.to = v
		m.body = m.body || v.reads("body")
	}
	if m.data != nil && m.data.program == nil {
		problems = append(problems, fmt.Sprintf("sources.%s.data: want an expression, such as =body.payload", o.Source))
	}
	for i, a := range o.Subjects {
		if !isPattern(a) {
			problems = append(problems, fmt.Sprintf("sources.%s.subjects: %q is no filter of subjects: want tokens with dots between them, * for any token, and > for all at the end", o.Source, a))
		}
		for _, b := range o.Subjects[:i] {
			if Overlap(a, b) {
				problems = append(problems, fmt.Sprintf("sources.%s.subjects: %s and %s overlap: each message must match one of them", o.Source, b, a))
			}
		}
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return m, nil
}

// isPattern reports whether NATS takes a text as a filter of subjects.
func isPattern(s string) bool {
	tokens := strings.Split(s, ".")
	for i, token := range tokens {
		switch {
		case token == "", strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }):
			return false
		case token == ">" && i == len(tokens)-1, token == "*":
		case strings.ContainsAny(token, "*>"):
			return false
		}
	}
	return true
}

func compileMapped(field, text string) (*mapped, error) {
	source, is := strings.CutPrefix(text, "=")
	switch {
	case is && strings.HasPrefix(source, "="):
		return &mapped{field: field, literal: source}, nil
	case is:
		p, errs := expression.Compile(source, expression.Options{Names: MappingNames()})
		if len(errs) > 0 {
			return nil, fmt.Errorf("%q: %w", text, errs[0])
		}
		return &mapped{field: field, program: p}, nil
	case strings.Contains(text, "${"):
		return nil, fmt.Errorf(`%q: ${…} is not read here: write an expression, such as ="order." + tokens[1]`, text)
	}
	if found := expression.FindUnmarked(text, false, MappingNames()); len(found) > 0 {
		return nil, fmt.Errorf("%s", found[0])
	}
	return &mapped{field: field, literal: text}, nil
}

// Source is the name of the mapping in the configuration.
func (p *Mapping) Source() string { return p.options.Source }

// Stream is the name of the stream.
func (p *Mapping) Stream() string { return p.options.Stream }

// Subjects are the filters; none means all subjects.
func (p *Mapping) Subjects() []string { return slices.Clone(p.options.Subjects) }

// Tenant returns the tenant of all events; ok is false if each message says its own.
func (p *Mapping) Tenant() (tenant string, ok bool) {
	if p.tenant == nil {
		return p.options.DefaultTenant, true
	}
	return p.tenant.literal, p.tenant.program == nil
}

// event decodes a message. If it cannot be an event, Malformed and Error are set, and the payload is the
// beginning of the body as a JSON string; without a tenant it is empty, because the default tenant must
// not see what another one sent.
func (p *Mapping) event(c Codec, m Message) edda.Event {
	base := edda.Event{Kind: edda.KindEvent, ID: p.firstID(m), Time: m.Time.UTC(), Stream: m.Stream, Seq: m.Seq, Member: m.Member}
	r := &mappedMessage{Message: m}
	tooLarge := len(m.Data) > c.maxPayload()
	var err error
	if base.Tenant, err = p.readTenant(r, tooLarge); err != nil {
		base.Tenant = p.options.DefaultTenant
		dead := malformed(base, m, fmt.Errorf("source %s: %w", p.options.Source, err))
		dead.Payload = nil
		return dead
	}
	if tooLarge {
		return malformed(base, m, p.tooLarge(c, m))
	}
	ev, err := p.decode(c, base, r)
	if err != nil {
		return malformed(base, m, fmt.Errorf("source %s: %w", p.options.Source, err))
	}
	return ev
}

func (p *Mapping) tooLarge(c Codec, m Message) error {
	return refuse(edda.DeadTooLarge, "the body has %d bytes, allowed are %d", len(m.Data), c.maxPayload())
}

// firstID is the id of a message without a key for it. A stream that is made anew counts from 1 again, so
// the store time is a part of the id.
func (p *Mapping) firstID(m Message) string {
	if id := m.header(headerMsgID); id != "" {
		return p.placed(m.member(id))
	}
	return fmt.Sprintf("%s@%d", m.place(), m.Time.UnixMilli())
}

// placed qualifies an id by the stream, because publishers of two streams may choose the same.
func (p *Mapping) placed(id string) string { return CloudEventID(p.options.Stream, id) }

func (p *Mapping) decode(c Codec, ev edda.Event, r *mappedMessage) (edda.Event, error) {
	m := r.Message
	tokens := strings.Split(m.Subject, ".")
	s := Subject{Tenant: ev.Tenant}
	if n := len(tokens); n > 1 {
		s.Name = tokens[n-2]
	}
	var err error
	if r.cloudEvent = isCloudEvent(m) || r.structured(); r.cloudEvent {
		if ev, err = c.cloudEvent(ev, s, m); err != nil {
			return ev, err
		}
	} else {
		ev.Type, ev.AggregateType = tokens[len(tokens)-1], s.Name
		if ev.Payload, err = r.plain(p.data == nil); err != nil {
			return ev, err
		}
		ev = m.withMetadata(ev, metadata{})
	}
	return ev, p.override(r, &ev)
}

// readTenant returns the tenant of a message. The body of one that is too large is not read.
func (p *Mapping) readTenant(r *mappedMessage, tooLarge bool) (string, error) {
	if tenant, fixed := p.Tenant(); fixed {
		return tenant, nil
	}
	if tooLarge && p.tenant.reads("body") {
		return "", refuse(edda.DeadTooLarge, "the body with the tenant is too large: it has %d bytes", len(r.Data))
	}
	tenant, err := r.required(p.tenant)
	if err != nil {
		return "", &refusal{edda.DeadTenant, err.Error()}
	}
	return tenant, nil
}

// override sets the attributes that the configuration names.
func (p *Mapping) override(r *mappedMessage, ev *edda.Event) error {
	if p.id != nil {
		id, err := r.required(p.id)
		if err != nil {
			return err
		}
		if !p.id.reads("body") { // the members of a batch have the rest in common
			id = r.member(id)
		}
		ev.ID = p.placed(id)
	}
	if err := p.overrideAggregate(r, ev); err != nil {
		return err
	}
	if p.eventType != nil {
		full, err := r.required(p.eventType)
		if err != nil {
			return &refusal{edda.DeadNoType, err.Error()}
		}
		ev.FullType = ""
		if setType(ev, full); ev.Type == "" {
			return refuse(edda.DeadNoType, "the type %.80q ends with a dot: put the event behind it", full)
		}
	}
	var err error
	if p.correlation != nil {
		if ev.Correlation, err = r.text(p.correlation); err != nil {
			return err
		}
	}
	if p.time != nil {
		written, err := r.text(p.time)
		if err != nil {
			return err
		}
		ev.Timestamp = time.Time{}
		if at, err := time.Parse(time.RFC3339Nano, written); err == nil {
			ev.Timestamp = at.UTC()
		}
	}
	if p.data == nil {
		return nil
	}
	v, err := r.eval(p.data)
	if err != nil {
		return err
	}
	if ev.Payload = nil; v == nil {
		return nil
	}
	ev.Payload, err = jsonvalue.Encode(v)
	return err
}

// overrideAggregate sets the aggregate. A full type that its old type was a part of stays the event's.
func (p *Mapping) overrideAggregate(r *mappedMessage, ev *edda.Event) (err error) {
	if p.aggregateID != nil {
		if ev.AggregateID, err = r.text(p.aggregateID); err != nil {
			return err
		}
	}
	if p.aggregateType == nil {
		return nil
	}
	was := ev.AggregateType
	if ev.AggregateType, err = r.text(p.aggregateType); err != nil {
		return err
	}
	if r.cloudEvent && ev.FullType == "" && was != "" && was != ev.AggregateType {
		ev.FullType = was + "." + ev.Type
	}
	return nil
}

// setType sets the type, and the version and the full type in it.
func setType(ev *edda.Event, full string) {
	ev.Type, ev.Version = edda.ShortType(full)
	if full != ev.Type && full != ev.AggregateType+"."+ev.Type {
		ev.FullType = full
	}
}

// mappedMessage is a message whose variables are made when an expression first needs them.
type mappedMessage struct {
	Message
	cloudEvent bool
	vars       map[string]any
}

// structured reports whether the body is a CloudEvent that no header announces.
func (r *mappedMessage) structured() bool {
	if !bytes.Contains(r.Data, []byte(`"specversion"`)) {
		return false
	}
	var ce struct{ SpecVersion, Source, Type, ID *string }
	return json.Unmarshal(r.Data, &ce) == nil && ce.SpecVersion != nil && ce.Source != nil && ce.Type != nil && ce.ID != nil
}

// plain returns the body as JSON. An expression for the data may read a message without one.
func (r *mappedMessage) plain(needed bool) (json.RawMessage, error) {
	body := bytes.TrimSpace(r.Data)
	if len(body) == 0 || !needed {
		return nil, nil
	}
	if err := jsonvalue.Check(body); err != nil {
		return nil, notJSON(err)
	}
	return payload(bytes.Clone(body)), nil
}

func notJSON(err error) error {
	return refuse(edda.DeadUndecodable, `the body is not JSON: %v: want a JSON value, such as {"order_id": "O1"}, or a CloudEvent`, err)
}

// variable returns one of MappingNames.
func (r *mappedMessage) variable(name string) (any, error) {
	switch name {
	case "subject":
		return r.Subject, nil
	case "tokens":
		var tokens []any
		for _, token := range strings.Split(r.Subject, ".") {
			tokens = append(tokens, token)
		}
		return tokens, nil
	case "headers":
		headers := map[string]any{}
		for name, values := range r.Header {
			if len(values) > 0 {
				headers[name] = strings.ToValidUTF8(values[0], "\uFFFD")
			}
		}
		return headers, nil
	case "body":
		if len(bytes.TrimSpace(r.Data)) == 0 {
			return nil, nil
		}
		v, err := jsonvalue.Decode(r.Data)
		if err != nil {
			return nil, notJSON(err)
		}
		return v, nil
	case "stream":
		return r.Stream, nil
	case "seq":
		return int(r.Seq), nil
	}
	return edda.FormatTime(r.Time), nil
}

func (r *mappedMessage) eval(v *mapped) (any, error) {
	if v.program == nil {
		return v.literal, nil
	}
	if r.vars == nil {
		r.vars = map[string]any{}
	}
	for _, name := range v.program.Names() {
		if _, known := r.vars[name]; known {
			continue
		}
		value, err := r.variable(name)
		if err != nil {
			return nil, err
		}
		r.vars[name] = value
	}
	got, err := v.program.Eval(expression.Env{Vars: r.vars})
	if err != nil {
		return nil, refuse(edda.DeadUndecodable, "%s: %v", v.field, err)
	}
	return got, nil
}

// text returns a text or a number as a text, and an empty one for null.
func (r *mappedMessage) text(v *mapped) (string, error) {
	got, err := r.eval(v)
	if err != nil {
		return "", err
	}
	switch got.(type) {
	case nil:
		return "", nil
	case bool, []any, map[string]any:
		return "", refuse(edda.DeadUndecodable, "%s is a %s: want a text or a number", v.field, jsonvalue.TypeName(got))
	}
	return expression.Text(got), nil
}

// required is text, but an empty text is an error.
func (r *mappedMessage) required(v *mapped) (string, error) {
	got, err := r.text(v)
	if err == nil && got == "" {
		err = refuse(edda.DeadUndecodable, "%s is empty: the message has nothing there", v.field)
	}
	return got, err
}
