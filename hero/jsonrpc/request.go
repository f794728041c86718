package jsonrpc

import (
	"bytes"
	"encoding/json"
)

const version = "2.0"

// null is the id of an answer to a request without a readable id.
const null = "null"

// request is one call. A notification has no id.
type request struct {
	id     json.RawMessage // as sent: a string, a number or null
	method string
	params json.RawMessage // nil for none
}

// response is the answer to one call: a result or an error.
type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

func failed(id json.RawMessage, err *Error) *response {
	if id == nil {
		id = json.RawMessage(null)
	}
	return &response{Version: version, ID: id, Error: err}
}

// readRequest reads one request, which check has passed. With an error it still returns the
// id, if there is one. It ignores unknown members, as jsonrpsee does.
func readRequest(raw json.RawMessage) (request, *Error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return request{}, Errorf(InvalidRequest, "a request is an object, not %s", kindOf(raw))
	}
	r := request{id: members["id"], params: members["params"]}
	if r.id != nil && !idLike(r.id) {
		r.id = nil
		return r, Errorf(InvalidRequest, "id: want a string, a number or null, got %s", kindOf(members["id"]))
	}
	var v string
	if json.Unmarshal(members["jsonrpc"], &v) != nil || v != version {
		return r, Errorf(InvalidRequest, `jsonrpc: want "2.0"`)
	}
	if kind := kindOf(members["method"]); kind != "a string" {
		return r, Errorf(InvalidRequest, "method: want a string, got %s", kind)
	}
	if err := json.Unmarshal(members["method"], &r.method); err != nil {
		return r, Errorf(InvalidRequest, "method: %v", err)
	}
	switch kindOf(r.params) {
	case "null", "nothing":
		r.params = nil
	case "an object", "a list":
	default:
		return r, Errorf(InvalidRequest, "params: want an object or a list, got %s", kindOf(r.params))
	}
	return r, nil
}

// idLike reports whether the value may be an id. The specification discourages fractions and
// allows them.
func idLike(raw json.RawMessage) bool {
	kind := kindOf(raw)
	return kind == "a string" || kind == "a number" || kind == "null"
}

// kindOf names the kind of a JSON value.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// encode writes JSON without the escapes of < and >. Only web pages need them, and scripts
// would have many.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
