package httpeffect

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"edda/internal/jsonvalue"
)

// bodies are the fields that give a call its body; a call has one at most.
func bodies() []string { return []string{"body", "form", "raw"} }

// body is the body of the call, nil where there is none. It sets the content
// type where the manifest gives none.
func body(config map[string]any, h http.Header) ([]byte, error) {
	kind := ""
	for _, name := range bodies() {
		if _, given := config[name]; given && kind != "" {
			return nil, errors.New("a call has one of " + strings.Join(bodies(), ", "))
		} else if given {
			kind = name
		}
	}
	switch kind {
	case "body":
		return encode(config["body"], h)
	case "form":
		return form(config["form"], h)
	case "raw":
		return raw(config["raw"], h)
	default:
		return nil, nil
	}
}

// encode is a body as JSON; a text goes out as it is under a content type of
// its own.
func encode(v any, h http.Header) ([]byte, error) {
	kind := h.Get("Content-Type")
	if text, isText := v.(string); isText && kind != "" && !strings.Contains(kind, "json") {
		return []byte(text), nil
	}
	ours(h, "Content-Type", "application/json")
	return jsonvalue.Encode(v)
}

// form is a map as a web page would send it: lists repeat their name, null is left out.
func form(v any, h http.Header) ([]byte, error) {
	given, isMap := v.(map[string]any)
	if !isMap {
		return nil, errors.New("form is no map")
	}
	values := url.Values{}
	for name, v := range given {
		addTo(values, name, v)
	}
	ours(h, "Content-Type", "application/x-www-form-urlencoded")
	return []byte(values.Encode()), nil
}

// errRaw says what raw is.
var errRaw = errors.New("raw is a text, or {base64: text} for bytes; body writes JSON")

// raw is a text as it is, or the bytes that a text in base64 stands for.
func raw(v any, h http.Header) ([]byte, error) {
	if text, isText := v.(string); isText {
		ours(h, "Content-Type", "text/plain; charset=utf-8")
		return []byte(text), nil
	}
	given, _ := v.(map[string]any)
	text, isText := given["base64"].(string)
	if !isText || len(given) != 1 {
		return nil, errRaw
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("raw.base64 is not in base64")
	}
	ours(h, "Content-Type", "application/octet-stream")
	return decoded, nil
}
