package httpeffect

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"edda/effects"
	"edda/effects/dial"
	"edda/manifests"
)

// Kind is what effects.Compile needs to know of http.
func Kind() effects.Kind {
	return effects.Kind{
		Check:  check,
		Escape: map[string]func(before, value string) string{"url": escape},
		Raw:    map[string]func(before, value string) string{"url": asIs},
		Fits:   map[string]func(text string) error{"url": stays},
		OK:     "status >= 200 and status < 300",
	}
}

// escape writes a value into a url's template, so that a payload cannot leave
// its place in the path or in the query. What comes before :// is the base
// itself and stays as it is.
func escape(before, value string) string {
	_, rest, found := strings.Cut(before, "://")
	switch {
	case !found:
		return value
	case strings.Contains(rest, "?"):
		return url.QueryEscape(value)
	case !strings.Contains(rest, "/"): // before an @ a host would become a user
		return strings.ReplaceAll(url.PathEscape(value), "@", "%40")
	default:
		return url.PathEscape(value)
	}
}

// asIs writes a value that the manifest puts into raw(…) as it is, but for a host: no
// value becomes another one, or a user.
func asIs(before, value string) string {
	if _, rest, found := strings.Cut(before, "://"); found && !strings.ContainsAny(rest, "/?") {
		return escape(before, value)
	}
	return value
}

func fieldNames() []string {
	return append([]string{"method", "url", "headers", "query"}, append(bodies(), "redirects", "tls")...)
}

// check tells what is wrong with an http: map before anything runs.
func check(m *manifests.Effect) manifests.Problems {
	c := checker{m: m}
	for _, f := range m.Config.Fields {
		c.field(f)
	}
	if m.Config.Field("url") == nil {
		c.errorf(m.Config.Pos, "http needs url: where to call")
	}
	c.oneBody()
	c.problems = append(c.problems, dial.CheckTLS(m.File, m.Config.Field("tls"))...)
	if tls := m.Config.Field("tls"); tls != nil && strings.HasPrefix(strings.ToLower(beginning(m.Config.Field("url"))), "http://") {
		c.errorf(tls.Pos, "tls does nothing for an http url: write https")
	}
	return c.problems
}

type checker struct {
	m        *manifests.Effect
	problems manifests.Problems
}

func (c *checker) errorf(pos manifests.Pos, format string, args ...any) {
	c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) warnf(pos manifests.Pos, format string, args ...any) {
	c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: pos, Warning: true, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) field(f manifests.Field) {
	switch f.Name {
	case "method":
		c.method(f.Value)
	case "url":
		c.url(f.Value)
	case "headers", "query", "form":
		c.namesAndValues(f)
	case "raw":
		c.raw(f.Value)
	case "redirects":
		c.redirects(f.Value)
	case "body", "tls": // tls is looked at with the url
	default:
		c.errorf(f.Pos, "http knows no %s; it knows %s", f.Name, strings.Join(fieldNames(), ", "))
	}
}

func (c *checker) method(v *manifests.Value) {
	if v.Kind != manifests.Literal {
		return
	}
	if s, _ := v.Scalar.(string); !slices.Contains(methods(), strings.ToUpper(s)) {
		c.errorf(v.Pos, "method is one of %s, not %v", strings.Join(methods(), ", "), v.Scalar)
	}
}

func (c *checker) namesAndValues(f manifests.Field) {
	if f.Value.Kind != manifests.Map && f.Value.Kind != manifests.Expression {
		c.errorf(f.Value.Pos, "%s is a map of names and values", f.Name)
	}
	if f.Name != "headers" {
		return
	}
	for _, h := range f.Value.Fields {
		text, _ := h.Value.Scalar.(string) // only of a literal
		if err := checkHeader(http.CanonicalHeaderKey(h.Name), []string{text}); err != nil {
			c.errorf(h.Pos, "%s", err)
		}
	}
}

// oneBody: a call has one body or none, and some methods have none.
func (c *checker) oneBody() {
	kind := ""
	for _, f := range c.m.Config.Fields {
		switch {
		case !slices.Contains(bodies(), f.Name):
		case kind != "":
			c.errorf(f.Pos, "a call has one of %s, and this has %s and %s", strings.Join(bodies(), ", "), kind, f.Name)
		default:
			kind = f.Name
			c.bodyOf(f)
		}
	}
}

func (c *checker) bodyOf(f manifests.Field) {
	v := c.m.Config.Field("method")
	if v == nil || v.Kind != manifests.Literal {
		return
	}
	s, _ := v.Scalar.(string)
	if m := strings.ToUpper(s); m == http.MethodGet || m == http.MethodHead || m == http.MethodTrace {
		c.warnf(f.Pos, "most servers do not read a body of %s: query gives it names and values", m)
	}
}

func (c *checker) raw(v *manifests.Value) {
	const want = "raw is a text, or {base64: text} for bytes; body writes JSON"
	switch v.Kind {
	case manifests.Literal:
		if _, isText := v.Scalar.(string); !isText {
			c.errorf(v.Pos, want)
		}
	case manifests.List:
		c.errorf(v.Pos, want)
	case manifests.Map:
		if len(v.Fields) != 1 || v.Field("base64") == nil {
			c.errorf(v.Pos, want)
		} else if given, known := v.Const(); known {
			if _, err := raw(given, http.Header{}); err != nil {
				c.errorf(v.Pos, "%s", err)
			}
		}
	}
}

func (c *checker) redirects(v *manifests.Value) {
	n, isInt := v.Scalar.(int)
	if v.Kind != manifests.Literal || !isInt || n < 0 || n > maxRedirects {
		c.errorf(v.Pos, "redirects is how many are followed: a number from 0, which it is when unsaid, to %d", maxRedirects)
	}
}

// beginning is what is known of a text: all of a literal, a template up to its
// first expression.
func beginning(v *manifests.Value) string {
	switch {
	case v == nil:
		return ""
	case v.Kind == manifests.Template && v.Parts[0].Expr == nil:
		return v.Parts[0].Text
	default:
		text, _ := v.Scalar.(string)
		return text
	}
}

// url looks at what is known of the address: all of a literal, the beginning of a template.
func (c *checker) url(v *manifests.Value) {
	var err error
	switch {
	case v.Kind == manifests.Literal:
		_, err = address(map[string]any{"url": v.Scalar})
	case v.Kind == manifests.Expression || v.Kind == manifests.Template && v.Parts[0].Expr != nil:
	default:
		if begin := strings.ToLower(beginning(v)); !strings.HasPrefix(begin, "http://") && !strings.HasPrefix(begin, "https://") {
			err = errors.New("another scheme")
		}
	}
	switch {
	case err != nil:
		c.errorf(v.Pos, "url is an http or https address such as https://pay.example/charges")
	case stays(written(v)) != nil:
		c.errorf(v.Pos, "url has a segment . or .. in its path: write the path that it leads to")
	}
}

// written is what a manifest itself says of a url, with an x in the place of each value.
func written(v *manifests.Value) string {
	text, _ := v.Scalar.(string)
	for _, p := range v.Parts {
		if text += p.Text; p.Expr != nil {
			text += "x"
		}
	}
	return text
}
