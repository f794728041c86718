package httpeffect

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"edda/effects"
	"edda/manifests"
)

// Kind is what effects.Compile needs to know of http.
func Kind() effects.Kind {
	return effects.Kind{Check: check, Escape: map[string]func(before, value string) string{"url": escape}, OK: "status >= 200 and status < 300"}
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
	case value == "." || value == "..":
		return strings.ReplaceAll(value, ".", "%2E")
	default:
		return url.PathEscape(value)
	}
}

func fieldNames() []string { return []string{"method", "url", "headers", "query", "body"} }

func methods() []string {
	return []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
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
	return c.problems
}

type checker struct {
	m        *manifests.Effect
	problems manifests.Problems
}

func (c *checker) errorf(pos manifests.Pos, format string, args ...any) {
	c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) field(f manifests.Field) {
	switch f.Name {
	case "method":
		c.method(f.Value)
	case "url":
		c.url(f.Value)
	case "headers", "query":
		if f.Value.Kind == manifests.Literal || f.Value.Kind == manifests.List || f.Value.Kind == manifests.Template {
			c.errorf(f.Value.Pos, "%s is a map of names and values", f.Name)
		}
	case "body":
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

// url looks at what is known of the address: all of a literal, the beginning of a template.
func (c *checker) url(v *manifests.Value) {
	text, known := "", true
	switch v.Kind {
	case manifests.Literal:
		text, _ = v.Scalar.(string)
	case manifests.Template:
		text = v.Parts[0].Text
		known = v.Parts[0].Expr == nil
	case manifests.Expression:
		return
	}
	if u, err := url.Parse(text); known && (err != nil || u.Scheme != "http" && u.Scheme != "https") {
		c.errorf(v.Pos, "url is an http or https address such as https://pay.example/charges")
	}
}
