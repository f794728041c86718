package httpeffect

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"edda/effects"
	"edda/effects/dial"
	"edda/effects/spec"
	"edda/manifests"
)

// Kind describes http to the compiler of effects.
func Kind() effects.ProviderKind {
	return effects.ProviderKind{
		Spec:   fields(),
		Escape: map[string]func(before, value string) string{"url": escape},
		Raw:    map[string]func(before, value string) string{"url": asIs},
		Fits:   map[string]func(text string) error{"url": stays},
		OK:     "status >= 200 and status < 300",
	}
}

// escape writes a value into the template of a URL, so that a payload cannot leave its place in the
// path or query. A value before :// is the base of the URL and stays as it is.
func escape(before, value string) string {
	_, rest, found := strings.Cut(before, "://")
	switch {
	case !found:
		return value
	case strings.Contains(rest, "?"):
		return url.QueryEscape(value)
	case !strings.Contains(rest, "/"): // before an @ the host would become a user
		return strings.ReplaceAll(url.PathEscape(value), "@", "%40")
	default:
		return url.PathEscape(value)
	}
}

// asIs writes a value in raw(…) as it is, except in the host, where no value may become another
// host or a user.
func asIs(before, value string) string {
	if _, rest, found := strings.Cut(before, "://"); found && !strings.ContainsAny(rest, "/?") {
		return escape(before, value)
	}
	return value
}

// fields describes an http: map.
func fields() *spec.Fields {
	names := func(name string) spec.Field {
		return spec.Field{Name: name, Type: spec.Map, Says: "a map of names and values"}
	}
	headers := names("headers")
	headers.Check = checkHeaders
	return &spec.Fields{Name: "http", Check: checkTogether, Fields: []spec.Field{
		{Name: "method", Read: checkMethod},
		{Name: "url", Needed: "where to call", Check: checkURL},
		headers, names("query"), {Name: "body"}, names("form"),
		{Name: "raw", Check: checkRaw},
		{Name: "redirects", Type: spec.Whole, Literal: true, Max: maxRedirects,
			Says: fmt.Sprintf("how many are followed: a number from 0, which it is when unsaid, to %d", maxRedirects)},
		dial.TLSField(),
	}}
}

func checkMethod(v any) error {
	if s, _ := v.(string); !slices.Contains(methods(), strings.ToUpper(s)) {
		return fmt.Errorf("method is one of %s, not %v", strings.Join(methods(), ", "), v)
	}
	return nil
}

func checkHeaders(c *spec.Checker, f manifests.Field) {
	for _, h := range f.Value.Fields {
		text, _ := h.Value.Scalar.(string) // only of a literal
		if err := checkHeader(http.CanonicalHeaderKey(h.Name), []string{text}); err != nil {
			c.Errorf(h.Pos, "%s", err)
		}
	}
}

func checkRaw(c *spec.Checker, f manifests.Field) {
	v := f.Value
	given, literal := v.Const()
	if _, err := raw(given, http.Header{}); literal && err != nil {
		c.Errorf(v.Pos, "%v", err)
	}
	if !literal && (v.Kind == manifests.List || v.Kind == manifests.Map && (len(v.Fields) != 1 || v.Field("base64") == nil)) {
		c.Errorf(v.Pos, "%v", errRaw)
	}
}

// checkTogether checks that there is at most one body, that the method has a body, and that tls
// belongs to https.
func checkTogether(c *spec.Checker, m *manifests.Value) {
	method := ""
	if v := m.Field("method"); v != nil && v.Kind == manifests.Literal {
		method = strings.ToUpper(v.Filled(""))
	}
	bodyless := slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodTrace}, method)
	kind := ""
	for _, f := range m.Fields {
		switch {
		case !slices.Contains(bodies(), f.Name):
		case kind != "":
			c.Errorf(f.Pos, "a call has one of %s, and this has %s and %s", strings.Join(bodies(), ", "), kind, f.Name)
		default:
			if kind = f.Name; bodyless {
				c.Warnf(f.Pos, "most servers do not read a body of %s: query gives it names and values", method)
			}
		}
	}
	if tls := m.Field("tls"); tls != nil && strings.HasPrefix(beginning(m.Field("url")), "http://") {
		c.Errorf(tls.Pos, "tls does nothing for an http url: write https")
	}
}

// hole stands for an expression in the text of a template.
const hole = "\x00"

// beginning returns a text up to its first expression, in lower case.
func beginning(v *manifests.Value) string {
	text, _, _ := strings.Cut(v.Filled(hole), hole)
	return strings.ToLower(text)
}

// checkURL checks the known part of the URL: all of a literal, the beginning of a template.
func checkURL(c *spec.Checker, f manifests.Field) {
	v := f.Value
	begin := beginning(v)
	ok := strings.HasPrefix(begin, "http://") || strings.HasPrefix(begin, "https://")
	switch v.Kind {
	case manifests.Literal:
		_, err := address(map[string]any{"url": v.Scalar})
		ok = err == nil
	case manifests.Expression:
		ok = true
	case manifests.Template:
		ok = ok || begin == ""
	}
	switch {
	case !ok:
		c.Errorf(v.Pos, "url is an http or https address such as https://pay.example/charges")
	case stays(v.Filled("x")) != nil:
		c.Errorf(v.Pos, "url has a segment . or .. in its path: write the path that it leads to")
	}
}
