package wire

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"edda"
)

const (
	cePrefix     = "ce-"
	ceStructured = "application/cloudevents"
	ceBatch      = "application/cloudevents-batch"
)

// isCloudEvent decides by the headers. A structured event without these headers is recognised by
// its specversion.
func isCloudEvent(m Message) bool { return m.structured() || m.binary() }

// structured reports whether the content type says that the body has all of a CloudEvent. A message
// in structured mode may repeat the attributes in headers.
func (m Message) structured() bool { return hasPrefixFold(m.header(headerContentType), ceStructured) }

// batch reports whether the content type says that the body is a list of CloudEvents.
func (m Message) batch() bool { return hasPrefixFold(m.header(headerContentType), ceBatch) }

func (m Message) binary() bool {
	return m.header(cePrefix+"specversion") != "" || m.header(cePrefix+"type") != ""
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// The extensions that are read and written.
const (
	extTenant        = "tenantid"
	extCorrelation   = "correlationid"
	extCausation     = "causationid"
	extTrace         = "traceparent"
	extAggregateType = "aggregatetype"
	extAggregateID   = "aggregateid"
	extBy            = "eddaby"
	extWhy           = "eddawhy"
)

var extensions = []string{extTenant, extCorrelation, extCausation, extTrace, extAggregateType, extAggregateID, extBy, extWhy}

// CloudEventID is the event id of a CloudEvent: its source and its id with a space between them,
// which no source contains.
func CloudEventID(source, id string) string { return source + " " + id }

// ownSource is the source of an event whose id names none.
const ownSource = "edda"

// cloudEvent decodes a CloudEvent 1.0. It has its full type, and the event and the version in it (see
// [edda.ShortType]).
func (c Codec) cloudEvent(ev edda.Event, s Subject, m Message) (edda.Event, error) {
	ce, err := readCloudEvent(m)
	if err != nil {
		return ev, err
	}
	return c.ofCloudEvent(ev, s, m, ce)
}

// ofCloudEvent sets the fields of an event. The subject has what the CloudEvent does not say.
func (c Codec) ofCloudEvent(ev edda.Event, s Subject, m Message, ce event.Event) (edda.Event, error) {
	if err := c.sameTenant(text(extension(ce, extTenant)), s); err != nil {
		return ev, err
	}
	aggregate := text(extension(ce, extAggregateID))
	if s.Short && aggregate == "" {
		aggregate = text(ce.Subject())
	}
	id, err := bodyID(s, aggregate, "aggregateid")
	if err != nil {
		return ev, err
	}
	ev.AggregateType, ev.AggregateID = orElse(text(extension(ce, extAggregateType)), s.Name), orElse(aggregate, id)
	if ev.ID = CloudEventID(ce.Source(), ce.ID()); s.Family == FamilyFact {
		ev.ID = ce.ID() // as in the envelope of a fact, whatever the configuration says
	}
	if setType(&ev, ce.Type()); ev.Type == "" && s.Family != FamilyFact {
		return ev, refuse(edda.DeadNoType, "the type %.80q of the CloudEvent ends with a dot: put the event behind it", ce.Type())
	}
	if s.Family == FamilyFact && strings.HasPrefix(ce.Source(), sagaSources) { // a manifest's name may have dots
		ev.Type, ev.FullType, ev.Version = strings.TrimPrefix(ce.Type(), s.Name+"."), "", factVersion
	} else if s.Family == FamilyFact {
		ev.Version = factVersion
	}
	ev.By, ev.Why = extension(ce, extBy), extension(ce, extWhy)
	ev.Timestamp = ce.Time().UTC()
	ev.Payload, err = ceData(ce)
	return m.withMetadata(ev, metadata{
		Correlation: text(extension(ce, extCorrelation)),
		Causation:   text(extension(ce, extCausation)),
		Trace:       text(extension(ce, extTrace)),
	}), err
}

func readCloudEvent(m Message) (event.Event, error) {
	ce := event.New()
	var err error
	switch {
	case m.batch():
		return ce, m.unsplit()
	case m.structured() || !m.binary():
		if t := m.header(headerContentType); m.structured() && !isJSON(t) {
			return ce, refuse(edda.DeadUndecodable, "a CloudEvent of type %.80q is not JSON: send %s", t, event.ApplicationCloudEventsJSON)
		}
		if err = json.Unmarshal(m.Data, &ce); err != nil {
			err = nameSource(m.Data, err)
		}
	default:
		err = binaryMode(&ce, m)
	}
	if err != nil {
		return ce, refuse(edda.DeadUndecodable, "the CloudEvent cannot be read: %s", strings.TrimSpace(err.Error()))
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

// nameSource names a source that the SDK cannot parse. Its error does not say which attribute it means.
func nameSource(data []byte, err error) error {
	var e struct{ Source *string }
	if json.Unmarshal(data, &e) == nil && e.Source != nil && types.ParseURIRef(*e.Source) == nil {
		return fmt.Errorf("its source %.80q is not a URI reference", *e.Source)
	}
	return err
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
	if slices.Contains(extensions, name) {
		ce.SetExtension(name, value)
		return
	}
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

// extension returns an extension as text. In structured mode it may be a number or a bool.
func extension(ce event.Event, name string) string {
	value, ok := ce.Extensions()[name]
	if !ok {
		return ""
	}
	s, _ := types.Format(value) // a value of a decoded event has a text
	return s
}

// ceData returns the data, which must be JSON.
func ceData(ce event.Event) (json.RawMessage, error) {
	data := ce.Data()
	if len(data) == 0 {
		return nil, nil
	}
	if t := ce.DataContentType(); t != "" && !isJSON(t) {
		return nil, refuse(edda.DeadUndecodable, "data of type %q is not JSON", t)
	}
	if !json.Valid(data) {
		return nil, refuse(edda.DeadUndecodable, "the data is not JSON")
	}
	return payload(append(json.RawMessage(nil), data...)), nil
}

// isJSON reports whether a content type is one of JSON. The CloudEvents media type without a format
// is JSON, too.
func isJSON(contentType string) bool {
	media, _, _ := mime.ParseMediaType(contentType)
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json") || media == ceStructured || media == ceBatch
}
