package natseffect

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"
	"golang.org/x/net/http/httpguts"

	"edda/effects"
	"edda/expression"
	"edda/internal/jsonvalue"
)

// The headers of a request, unless the manifest has them.
const (
	headerMsgID       = nats.MsgIdHdr
	headerKey         = "Idempotency-Key"
	headerTrace       = "traceparent"
	headerContentType = "Content-Type"
)

// request builds the message from the manifest's evaluated map.
func request(c effects.Call) (*nats.Msg, error) {
	m := nats.NewMsg(expression.Text(c.Config["subject"]))
	if c.Asks && c.Config["answer"] != nil {
		return m, nil // only the answer is looked for
	}
	if err := checkSubject(m.Subject); err != nil {
		return nil, err
	}
	if err := addHeaders(m.Header, c.Config["headers"]); err != nil {
		return nil, err
	}
	if !c.Asks { // a stream would drop the question as a duplicate of the call
		ours(m.Header, headerMsgID, c.Key)
	}
	ours(m.Header, headerKey, c.Key)
	if traceparent.MatchString(c.Trace) {
		ours(m.Header, headerTrace, c.Trace)
	}
	body, given := c.Config["body"]
	if !given {
		return m, nil
	}
	var err error
	m.Data, err = encode(body, m.Header)
	return m, err
}

// traceparent is the form of the W3C header. Other traces are not sent.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// addHeaders adds the map headers of a manifest.
func addHeaders(h nats.Header, config any) error {
	given, isMap := config.(map[string]any)
	if !isMap && config != nil {
		return errors.New("headers is no map")
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err := addHeader(h, name, given[name]); err != nil {
			return err
		}
	}
	return nil
}

// addHeader adds a value: each item of a list, and nothing for null. Errors show no value, which may
// be a secret.
func addHeader(h nats.Header, name string, v any) error {
	switch v := v.(type) {
	case nil:
		return checkHeader(name, "")
	case []any:
		for _, item := range v {
			if err := addHeader(h, name, item); err != nil {
				return err
			}
		}
		return nil
	}
	text := expression.Text(v)
	if err := checkHeader(name, text); err != nil {
		return err
	}
	h.Add(name, text)
	return nil
}

func checkHeader(name, value string) error {
	if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("header %q has a name or a value that NATS does not allow", name)
	}
	return nil
}

// find returns the value of a header, whose name may be in any case.
func find(h nats.Header, name string) (value string, found bool) {
	for given, values := range h {
		if strings.EqualFold(given, name) && len(values) > 0 {
			return values[0], true
		}
	}
	return "", false
}

// ours sets a header unless the manifest does.
func ours(h nats.Header, name, v string) {
	if given, _ := find(h, name); given == "" && v != "" {
		h.Set(name, v)
	}
}

// encode encodes a body as JSON. A text with its own content type is sent as it is.
func encode(v any, h nats.Header) ([]byte, error) {
	kind, _ := find(h, headerContentType)
	if text, isText := v.(string); isText && kind != "" && !strings.Contains(kind, "json") {
		return []byte(text), nil
	}
	ours(h, headerContentType, "application/json")
	return jsonvalue.Encode(v)
}

// maxSubject bounds a subject in bytes. The server's own bound is that of a whole protocol line.
const maxSubject = 1024

var (
	errSubject = errors.New("subject is one subject such as stock.reserve: tokens with dots between them, and no blanks, wildcards or control characters; " +
		"a value from ${…} is one token, unless it is in raw(…)")
	errServers = errors.New("subject begins with $ or _INBOX: it belongs to the NATS server or to a client, and no service is called there")
)

// checkSubject returns an error, without the subject, if a request cannot have it.
func checkSubject(s string) error {
	if strings.HasPrefix(s, "$") || s == "_INBOX" || strings.HasPrefix(s, "_INBOX.") {
		return errServers
	}
	if len(s) > maxSubject {
		return fmt.Errorf("subject has %d bytes, and at most %d are allowed", len(s), maxSubject)
	}
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsFunc(token, func(r rune) bool {
			return r == '*' || r == '>' || r == unicode.ReplacementChar || unicode.IsSpace(r) || unicode.IsControl(r)
		}) {
			return errSubject
		}
	}
	return nil
}
