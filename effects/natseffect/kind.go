package natseffect

import (
	"strings"

	"edda/effects"
	"edda/effects/spec"
	"edda/manifests"
)

// Kind describes nats to the compiler of effects.
func Kind() effects.ProviderKind {
	return effects.ProviderKind{
		Spec:   fields(),
		Escape: map[string]func(before, value string) string{"subject": oneToken},
		Raw:    map[string]func(before, value string) string{"subject": asIs},
		Fits:   map[string]func(text string) error{"subject": checkSubject},
		OK:     "status == 200",
	}
}

// oneToken keeps a value within its token. A dot makes the subject invalid, because a service would
// not know an escape.
func oneToken(_, value string) string { return strings.ReplaceAll(value, ".", " ") }

func asIs(_, value string) string { return value }

// fields describes a nats: map.
func fields() *spec.Fields {
	return &spec.Fields{Name: "nats", Fields: []spec.Field{
		{Name: "subject", Needed: "where the service listens", Type: spec.Text, Check: checkSubjectField},
		{Name: "headers", Type: spec.Map, Says: "a map of names and values", Check: checkHeaderFields},
		{Name: "body"},
	}}
}

// checkSubjectField checks the form of a subject, and warns if its first token comes from the
// payload.
func checkSubjectField(c *spec.Checker, f manifests.Field) {
	v := f.Value
	if v.Kind != manifests.Expression {
		if err := checkSubject(v.Filled("x")); err != nil {
			c.Errorf(v.Pos, "%v", err)
		}
	}
	first := v.Expr
	if v.Kind == manifests.Template && len(v.Parts) > 0 {
		first = v.Parts[0].Expr
	}
	if first != nil && spec.Uses(&manifests.Value{Kind: manifests.Expression, Expr: first}, "payload") {
		c.Warnf(v.Pos, "the payload chooses which service is called: begin the subject with a text, as in stock.${payload.region}.reserve")
	}
}

func checkHeaderFields(c *spec.Checker, f manifests.Field) {
	for _, h := range f.Value.Fields {
		text, _ := h.Value.Scalar.(string) // only of a literal
		if err := checkHeader(h.Name, text); err != nil {
			c.Errorf(h.Pos, "%v", err)
		}
	}
}
