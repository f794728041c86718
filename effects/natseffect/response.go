package natseffect

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"edda"
	"edda/effects"
	"edda/internal/jsonvalue"
)

// maxAnswer bounds an answer, whatever the server allows.
const maxAnswer = 1 << 20

// statusOK is the status of an answer that is no error of the services API.
const statusOK = 200

// response reads a reply, and its headers unless bare. A success that is too long has an unknown
// outcome; of an error only the body is dropped.
func response(m *nats.Msg, bare bool) (effects.Response, error) {
	code, message, isError := serviceError(m.Header)
	data := m.Data
	if len(data) > maxAnswer {
		if !isError {
			return effects.Response{}, edda.Classify(edda.Permanent, "answer is larger than 1 MiB")
		}
		data = nil
	}
	r := effects.Response{Status: statusOK, Body: decode(data)}
	if !bare {
		r.Headers = flat(m.Header)
	}
	if isError {
		r = refusal(r, code, message)
	}
	return r, nil
}

// acknowledged returns the stream whose acknowledgement a reply is; empty if it is none.
func acknowledged(m *nats.Msg) string {
	if len(m.Header) > 0 || len(m.Data) > 1<<10 {
		return ""
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(m.Data, &fields) != nil {
		return ""
	}
	var ack struct {
		Stream string
		Seq    uint64
	}
	known := []string{"stream", "seq", "domain", "duplicate", "error", "val", "batch", "count"}
	for name := range fields {
		if !slices.Contains(known, name) {
			return ""
		}
	}
	if fields["seq"] == nil || json.Unmarshal(m.Data, &ack) != nil {
		return ""
	}
	return ack.Stream
}

// serviceError reads the headers of an error of the services API.
func serviceError(h nats.Header) (code, message string, isError bool) {
	code, hasCode := find(h, micro.ErrorCodeHeader)
	message, hasMessage := find(h, micro.ErrorHeader)
	return strings.ToValidUTF8(code, "\uFFFD"), strings.ToValidUTF8(message, "\uFFFD"), hasCode || hasMessage
}

// refusal is the answer for an error of the services API. Its body has the code, the message and
// what the service sent as data.
func refusal(r effects.Response, code, message string) effects.Response {
	body := map[string]any{"code": code, "message": message}
	if r.Body != nil {
		body["data"] = r.Body
	}
	r.Body = body
	s, err := strconv.Atoi(code)
	if err != nil || s < 0 || s > 999 || s == statusOK {
		s = 0 // the code is a text
	}
	// A handler may have done its work before it failed.
	unknown := s == http.StatusRequestTimeout || s >= http.StatusInternalServerError && s <= 599
	r.Status = s
	r.Retry = unknown || s == http.StatusTooManyRequests
	r.Refused = s == http.StatusTooManyRequests
	r.Unknown = unknown
	r.Apart = slices.Contains(apart(), s)
	return r
}

// apart lists the errors that are about this call only, as over HTTP: it was not authorised, or it met
// what an earlier call created.
func apart() []int {
	return []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusConflict}
}

func flat(h nats.Header) map[string]string {
	out := make(map[string]string, len(h))
	for name, values := range h {
		out[strings.ToLower(name)] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	return out
}

// decode decodes JSON. Other bytes are a text, and no bytes are null.
func decode(raw []byte) any {
	if v, err := jsonvalue.Decode(raw); err == nil {
		return v
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}
