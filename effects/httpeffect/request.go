package httpeffect

import (
	"bytes"
	"cmp"
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
)

func methods() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions, http.MethodTrace,
	}
}

// request builds the call from the evaluated map of the manifest, and says how many
// redirects are followed.
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

// to is the first request of a trip. http.NewRequestWithContext would read the
// address once more, and make a header that is not used.
func (t *trip) to(method string, target *url.URL, header http.Header, body []byte) *http.Request {
	target.User, target.Host = nil, strings.TrimSuffix(target.Host, ":") // a port may be left empty
	req := http.Request{
		Method: method, URL: target, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Host: header.Get("Host"), ContentLength: int64(len(body)),
	}
	if len(body) > 0 {
		// of types that net/http knows: before it reads another, it writes the head by itself
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody()
	}
	return req.WithContext(t.watched(target))
}

// unsaid is the method of a call whose manifest gives none: to ask changes nothing.
func unsaid(c effects.Call) string {
	if c.Asks {
		return http.MethodGet
	}
	return http.MethodPost
}

// safe reports whether a method asks to change nothing.
func safe(method string) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}, method)
}

// address is the url with the query added.
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

// addTo adds a value, each item of a list, and nothing for null.
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

// sorted are the names of a map, of which most calls have none.
func sorted(m map[string]any) []string {
	if len(m) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

// agent is the User-Agent of a call whose manifest gives none.
const agent = "edda"

// basic is what a url says before its host, as a header.
func basic(user *url.Userinfo) string {
	req := http.Request{Header: http.Header{}}
	password, _ := user.Password()
	req.SetBasicAuth(user.Username(), password)
	return req.Header.Get("Authorization")
}

// reserved are headers by which HTTP itself works: the connection sets them.
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

// ours sets a header that the manifest does not; its name is in its canonical form.
func ours(h http.Header, name, v string) {
	if given := h[name]; len(given) == 0 || given[0] == "" {
		h[name] = []string{v}
	}
}

// traceparent is the W3C form; a bare trace id is no header.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
