package wire

import (
	"encoding/json"
	"mime"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"

	"edda"
)

const (
	cePrefix     = "ce-"
	ceStructured = "application/cloudevents"
	ceBatch      = "application/cloudevents-batch"
)

// isCloudEvent decides by the headers. A structured event without these headers is recognised by
// its specversion.
func isCloudEvent(m Message) bool {
	return m.header(cePrefix+"specversion") != "" || m.header(cePrefix+"type") != "" ||
		strings.HasPrefix(m.header(headerContentType), ceStructured)
}

// cloudEvent decodes a CloudEvent 1.0. The event id is source and id with a space between them,
// which no source contains. The type is the last word of the reverse domain name, without a
// trailing version: com.shop.OrderPlaced.v2 is version 2 of OrderPlaced. The extensions tenantid,
// correlationid, causationid, traceparent, aggregatetype and aggregateid are read.
func (c Codec) cloudEvent(ev edda.Event, s Subject, m Message) (edda.Event, error) {
	ce, err := readCloudEvent(m)
	if err != nil {
		return ev, err
	}
	if err := c.sameTenant(text(extension(ce, "tenantid")), s); err != nil {
		return ev, err
	}
	aggregate := text(extension(ce, "aggregateid"))
	if s.Short && aggregate == "" {
		aggregate = text(ce.Subject())
	}
	id, err := bodyID(s, aggregate, "aggregateid")
	if err != nil {
		return ev, err
	}
	ev.AggregateType, ev.AggregateID = orElse(text(extension(ce, "aggregatetype")), s.Name), orElse(aggregate, id)
	ev.ID = ce.Source() + " " + ce.ID()
	ev.Type, ev.Version = ceType(ce.Type())
	ev.Timestamp = ce.Time().UTC()
	ev.Payload, err = ceData(ce)
	return m.withMetadata(ev, metadata{
		Correlation: text(extension(ce, "correlationid")),
		Causation:   text(extension(ce, "causationid")),
		Trace:       text(extension(ce, "traceparent")),
	}), err
}

func readCloudEvent(m Message) (event.Event, error) {
	ce := event.New()
	if strings.HasPrefix(m.header(headerContentType), ceBatch) {
		return ce, refuse(edda.DeadUndecodable, "a batch of CloudEvents is not one event")
	}
	var err error
	if m.header(cePrefix+"specversion") == "" && m.header(cePrefix+"type") == "" {
		err = json.Unmarshal(m.Data, &ce)
	} else {
		err = binaryMode(&ce, m)
	}
	if err != nil {
		return ce, refuse(edda.DeadUndecodable, "the CloudEvent cannot be read: %v", err)
	}
	if ce.Type() == "" {
		return ce, refuse(edda.DeadNoType, "the CloudEvent has no type")
	}
	if ce.SpecVersion() != event.CloudEventsVersionV1 {
		return ce, refuse(edda.DeadUndecodable, "CloudEvents version %q is not 1.0", ce.SpecVersion())
	}
	if err := ce.Validate(); err != nil {
		return ce, refuse(edda.DeadUndecodable, "the CloudEvent is not valid: %s", strings.Join(strings.FieldsFunc(err.Error(), lineEnd), "; "))
	}
	return ce, nil
}

// lineEnd separates the errors that Validate reports.
func lineEnd(r rune) bool { return r == '\n' || r == '\r' }

// binaryMode reads the attributes from the headers, and the data from the body.
func binaryMode(ce *event.Event, m Message) error {
	for name, values := range m.Header {
		name = strings.ToLower(name)
		if !strings.HasPrefix(name, cePrefix) || len(values) == 0 {
			continue
		}
		value, err := headerValue(values[0])
		if err != nil {
			return err
		}
		setAttribute(ce, strings.TrimPrefix(name, cePrefix), value)
	}
	if t := m.header(headerContentType); t != "" && ce.DataContentType() == "" {
		ce.SetDataContentType(t)
	}
	ce.DataEncoded = m.Data
	return nil
}

// setAttribute ignores errors, because Validate reports all of them.
func setAttribute(ce *event.Event, name, value string) {
	switch name {
	case "specversion":
		ce.SetSpecVersion(value)
	case "id":
		ce.SetID(value)
	case "source":
		ce.SetSource(value)
	case "type":
		ce.SetType(value)
	case "subject":
		ce.SetSubject(value)
	case "datacontenttype":
		ce.SetDataContentType(value)
	case "dataschema":
		ce.SetDataSchema(value)
	case "time":
		// An unreadable time is ignored, as in the native envelope.
		if t, err := time.Parse(time.RFC3339Nano, value); err == nil {
			ce.SetTime(t)
		}
	case "tenantid", "correlationid", "causationid", "traceparent", "aggregatetype", "aggregateid":
		ce.SetExtension(name, value)
	}
}

// headerValue decodes a header by the NATS binding of CloudEvents: optional double quotes, then
// percent-encoding.
func headerValue(v string) (string, error) {
	if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
		if unquoted, err := strconv.Unquote(v); err == nil {
			v = unquoted
		}
	}
	decoded, err := url.PathUnescape(v)
	if err != nil {
		return v, nil // a plain '%' of a producer that does not encode
	}
	if !utf8.ValidString(decoded) {
		return "", refuse(edda.DeadUndecodable, "a header is not UTF-8: %.80q", v)
	}
	return decoded, nil
}

func extension(ce event.Event, name string) string {
	s, _ := ce.Extensions()[name].(string)
	return s
}

func ceType(full string) (string, int) {
	version := 0
	parts := strings.Split(full, ".")
	if last := parts[len(parts)-1]; len(parts) > 1 && strings.HasPrefix(last, "v") {
		if n, err := strconv.Atoi(last[1:]); err == nil && n > 0 {
			version, parts = n, parts[:len(parts)-1]
		}
	}
	return parts[len(parts)-1], version
}

// ceData returns the data, which must be JSON.
func ceData(ce event.Event) (json.RawMessage, error) {
	data := ce.Data()
	if len(data) == 0 {
		return nil, nil
	}
	if t := ce.DataContentType(); t != "" {
		media, _, _ := mime.ParseMediaType(t)
		if media != "application/json" && media != "text/json" && !strings.HasSuffix(media, "+json") {
			return nil, refuse(edda.DeadUndecodable, "data of type %q is not JSON", t)
		}
	}
	if !json.Valid(data) {
		return nil, refuse(edda.DeadUndecodable, "the data is not JSON")
	}
	return payload(append(json.RawMessage(nil), data...)), nil
}
