package httpeffect

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"edda/effects"
	"edda/expression"
	"edda/internal/jsonvalue"
)

func methods() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions, http.MethodTrace,
	}
}

// request builds the first request from the manifest's evaluated map. hops is how many redirects to
// follow.
func (t *trip) request(c effects.Call) (req *http.Request, hops int, err error) {
	if hops, err = redirects(c.Config); err != nil {
		return nil, 0, err
	}
	method := strings.ToUpper(cmp.Or(expression.Text(c.Config["method"]), unsaid(c)))
	if !slices.Contains(methods(), method) {
		return nil, 0, errors.New("method is none of " + strings.Join(methods(), ", "))
	}
	target, err := address(c.Config)
	if err != nil {
		return nil, 0, err
	}
	header, err := header(c, target.User)
	if err != nil {
		return nil, 0, err
	}
	body, err := body(c.Config, header)
	if err != nil {
		return nil, 0, err
	}
	return t.to(method, target, header, body), hops, nil
}

// to makes the first request of a trip. http.NewRequestWithContext would parse the URL again and
// make an unused header.
func (t *trip) to(method string, target *url.URL, header http.Header, body []byte) *http.Request {
	target.User, target.Host = nil, strings.TrimSuffix(target.Host, ":") // the port may be empty
	req := http.Request{
		Method: method, URL: target, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Host: header.Get("Host"), ContentLength: int64(len(body)),
	}
	if len(body) > 0 {
		// net/http knows these types; before it reads another, it flushes the head
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody()
	}
	return req.WithContext(t.watched(target))
}

// unsaid is the method of a call whose manifest has none. A check changes nothing.
func unsaid(c effects.Call) string {
	if c.Asks {
		return http.MethodGet
	}
	return http.MethodPost
}

// safe reports whether a method changes nothing.
func safe(method string) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}, method)
}

// address parses url, and adds query.
func address(config map[string]any) (*url.URL, error) {
	u, err := url.Parse(expression.Text(config["url"]))
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("url is no http or https address")
	}
	host, err := httpguts.PunycodeHostPort(strings.ToLower(u.Host))
	if err != nil {
		return nil, errors.New("url has a host that is no name")
	}
	u.Host, u.Fragment, u.RawFragment = host, "", ""
	query, isMap := config["query"].(map[string]any)
	if !isMap && config["query"] != nil {
		return nil, errors.New("query is no map")
	}
	if len(query) == 0 {
		return u, nil
	}
	values := u.Query()
	for name, v := range query {
		addTo(values, name, v)
	}
	u.RawQuery = values.Encode()
	return u, nil
}

// addTo adds a value: each item of a list, and nothing for null.
func addTo(values map[string][]string, name string, v any) {
	switch v := v.(type) {
	case nil:
	case []any:
		for _, item := range v {
			addTo(values, name, item)
		}
	default:
		values[name] = append(values[name], expression.Text(v))
	}
}

func header(c effects.Call, user *url.Userinfo) (http.Header, error) {
	given, isMap := c.Config["headers"].(map[string]any)
	if !isMap && c.Config["headers"] != nil {
		return nil, errors.New("headers is no map")
	}
	h := http.Header{}
	for _, name := range sorted(given) {
		addTo(h, http.CanonicalHeaderKey(name), given[name])
	}
	for name, values := range h {
		if err := checkHeader(name, values); err != nil {
			return nil, err
		}
	}
	ours(h, "Idempotency-Key", c.Key)
	ours(h, "User-Agent", agent)
	if traceparent.MatchString(c.Trace) {
		ours(h, "Traceparent", c.Trace)
	}
	if user != nil {
		ours(h, "Authorization", basic(user))
	}
	return h, nil
}

// sorted returns the names of a map, which is empty for most calls.
func sorted(m map[string]any) []string {
	if len(m) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

// agent is the User-Agent unless the manifest has one.
const agent = "edda"

// basic returns the user of a URL as an Authorization header.
func basic(user *url.Userinfo) string {
	req := http.Request{Header: http.Header{}}
	password, _ := user.Password()
	req.SetBasicAuth(user.Username(), password)
	return req.Header.Get("Authorization")
}

// reserved lists the headers that the connection sets.
func reserved() []string {
	return []string{"Accept-Encoding", "Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
}

func checkHeader(name string, values []string) error {
	if slices.Contains(reserved(), name) {
		return fmt.Errorf("header %s is set by the connection itself: leave it out", name)
	}
	valid := httpguts.ValidHeaderFieldName(name)
	for _, v := range values {
		valid = valid && httpguts.ValidHeaderFieldValue(v)
	}
	if !valid {
		return fmt.Errorf("header %q has a name or a value that HTTP does not allow", name)
	}
	if name == "Host" && (len(values) != 1 || !httpguts.ValidHostHeader(values[0])) {
		return errors.New("header Host is the name of one host")
	}
	return nil
}

// ours sets a header unless the manifest does. name is in its canonical form.
func ours(h http.Header, name, v string) {
	if given := h[name]; len(given) == 0 || given[0] == "" {
		h[name] = []string{v}
	}
}

// traceparent is the form of the W3C header. Other traces are not sent.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// bodies lists the fields that are a body. A call has at most one of them.
func bodies() []string { return []string{"body", "form", "raw"} }

// body encodes the body, nil if there is none. It sets the content type unless the manifest does.
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

// encode encodes a body as JSON. A text with its own content type is sent as it is.
func encode(v any, h http.Header) ([]byte, error) {
	kind := h.Get("Content-Type")
	if text, isText := v.(string); isText && kind != "" && !strings.Contains(kind, "json") {
		return []byte(text), nil
	}
	ours(h, "Content-Type", "application/json")
	return jsonvalue.Encode(v)
}

// form encodes a map as a web form. A list repeats its name, null is left out.
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

var errRaw = errors.New("raw is a text, or {base64: text} for bytes; body writes JSON")

// raw returns a text as it is, or the bytes of a text in base64.
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
