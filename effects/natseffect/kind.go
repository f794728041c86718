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
	stream := spec.Field{Name: "stream", Type: spec.Text, Literal: true, Says: "the name of a stream, and not evaluated"}
	answers := stream
	answers.Needed = "which stream the answer comes in"
	return &spec.Fields{Name: "nats", Check: checkTogether, Fields: []spec.Field{
		{Name: "subject", Type: spec.Text, Check: checkSubjectField},
		{Name: "headers", Type: spec.Map, Says: "a map of names and values", Check: checkHeaderFields},
		{Name: "body"},
		stream,
		{Name: "answer", Type: spec.Map, Literal: true, Of: &spec.Fields{Name: "answer", Path: "answer.", Fields: []spec.Field{
			answers,
			{Name: "subject", Needed: "the subject of the answer, without the key at its end", Type: spec.Text, Literal: true, Check: checkSubjectField},
		}}},
	}}
}

// checkTogether checks the fields that need each other. A check may look for an answer alone.
func checkTogether(c *spec.Checker, m *manifests.Value) {
	looks := c.Asks && m.Field("answer") != nil
	for _, name := range []string{"subject", "stream", "headers", "body"} {
		if f := m.Field(name); f != nil && looks {
			c.Errorf(f.Pos, "a check with answer looks for the answer and publishes nothing: leave %s out", name)
		}
	}
	switch {
	case looks:
	case m.Field("subject") == nil:
		c.Errorf(m.Pos, "nats needs subject: where the service listens")
	case m.Field("answer") != nil && m.Field("stream") == nil:
		c.Errorf(m.Field("answer").Pos, "answer needs stream: the stream that stores the request until the service takes it")
	}
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
