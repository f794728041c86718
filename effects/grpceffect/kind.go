package grpceffect

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"edda/effects"
	"edda/effects/dial"
	"edda/effects/spec"
	"edda/manifests"
)

// Kind describes grpc to the compiler of effects.
func Kind() effects.ProviderKind {
	return effects.ProviderKind{
		Spec:   fields(),
		Escape: map[string]func(before, value string) string{"target": escapeTarget, "method": escapeMethod},
		OK:     "status == 0",
	}
}

// escapeTarget keeps a value within a part of a host name or a port. A value at the beginning of
// the target stays as it is. Other characters make the target invalid, so that nothing is called.
func escapeTarget(before, value string) string {
	if before == "" {
		return value
	}
	return escape(value, func(r rune) bool { return r == '-' || r == '.' || isWord(r) })
}

// escapeMethod keeps a value within one name.
func escapeMethod(before, value string) string {
	if before == "" {
		return value
	}
	return escape(value, isWord)
}

func escape(value string, allowed func(rune) bool) string {
	return strings.Map(func(r rune) rune {
		if allowed(r) {
			return r
		}
		return '%' // invalid in a target and in a method
	}, value)
}

func isWord(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// fields describes a grpc: map.
func fields() *spec.Fields {
	path := func(name string) spec.Field {
		return spec.Field{Name: name, Type: spec.Text, Literal: true, Says: "the path of a file, and not evaluated"}
	}
	folder := path("import_paths")
	return &spec.Fields{Name: "grpc", Check: checkTogether, Fields: []spec.Field{
		{Name: "target", Needed: "the host:port to call", Check: form("1", isTarget, "target is host:port such as pay.example:443")},
		{Name: "method", Needed: "which method to call: package.Service/Method",
			Check: form("x", methodForm.MatchString, "method is package.Service/Method such as shop.v1.Payments/Charge")},
		{Name: "message", Type: spec.Map},
		{Name: "metadata", Type: spec.Map, Check: checkMetadata},
		path("proto"), path("descriptor_set"),
		{Name: "import_paths", Type: spec.List, Literal: true, Says: "a list of folders", Items: &folder},
		dial.TLSField(),
		{Name: "plaintext", Type: spec.Bool, Literal: true},
	}}
}

// form checks the form of a text. In a template, value stands for every expression. A template that
// begins with an expression is not checked, because the value may be most of the text.
func form(value string, valid func(string) bool, says string) func(*spec.Checker, manifests.Field) {
	return func(c *spec.Checker, f manifests.Field) {
		v := f.Value
		unknown := v.Kind == manifests.Expression || v.Kind == manifests.Template && v.Parts[0].Expr != nil
		if !unknown && !valid(v.Filled(value)) {
			c.Errorf(v.Pos, "%s", says)
		}
	}
}

func checkMetadata(c *spec.Checker, f manifests.Field) {
	for _, f := range f.Value.Fields {
		name := strings.ToLower(f.Name)
		if !allowedName(name) {
			c.Errorf(f.Pos, "metadata %q is a name that gRPC does not allow or keeps for itself", f.Name)
			continue
		}
		for _, v := range append([]*manifests.Value{f.Value}, f.Value.Items...) {
			if v.Kind == manifests.Map {
				c.Errorf(v.Pos, "metadata %q is a text or a list of texts", name)
			} else if _, err := wire(name, v.Filled("")); v.Kind == manifests.Literal && err != nil {
				c.Errorf(v.Pos, "%s", err)
			}
		}
	}
}

// checkTogether checks fields that exclude or need each other, and the call against its
// description.
func checkTogether(c *spec.Checker, m *manifests.Value) {
	exclusive(c, m, "proto", "descriptor_set", "one describes the method")
	exclusive(c, m, "tls", "plaintext", "plaintext is without TLS")
	if paths := m.Field("import_paths"); paths != nil && m.Field("proto") == nil {
		c.Errorf(paths.Pos, "import_paths is where the imports of proto: are, and there is no proto")
	}
	if !c.Problems.Failed() {
		checkCall(c, m)
	}
}

func exclusive(c *spec.Checker, m *manifests.Value, one, other, why string) {
	a, b := m.Field(one), m.Field(other)
	if a != nil && b != nil && a.Scalar != false && b.Scalar != false {
		c.Errorf(b.Pos, "%s and %s exclude each other: %s", one, other, why)
	}
}

// checkCall checks the method and the message against the files that the manifest names.
func checkCall(c *spec.Checker, m *manifests.Value) {
	config := map[string]any{}
	for _, name := range []string{"proto", "descriptor_set", "import_paths"} {
		if v := m.Field(name); v != nil {
			config[name], _ = v.Const()
		}
	}
	from, err := files(effects.Call{Config: config, Folder: filepath.Dir(c.File.Name)})
	full := m.Field("method")
	if from == nil || err != nil || full.Kind != manifests.Literal {
		return
	}
	at := m.Field("proto")
	if at == nil {
		at = m.Field("descriptor_set")
	}
	found := describe(c, from, at, full)
	if message := m.Field("message"); found != nil && message != nil {
		checkMessage(c, message, found.in)
	}
}

// describe reads the files and finds the method. An error in a file is reported at the field that
// names the file, a missing method at the method.
func describe(c *spec.Checker, from descriptors, at, full *manifests.Value) *method {
	found, read, err := readAll(context.Background(), from)
	if err != nil {
		c.Errorf(at.Pos, "%s", err)
		return nil
	}
	m, err := newMethod(full.Scalar.(string), found, read)
	if err != nil {
		c.Errorf(full.Pos, "%s; described are %s", err, shortened(methodsOf(found)))
	}
	return m
}

// shown bounds the names in a message.
const shown = 20

func shortened(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if len(names) > shown {
		names = append(slices.Clone(names[:shown]), "…")
	}
	return strings.Join(names, ", ")
}

// checkMessage checks the literal field names of a message.
func checkMessage(c *spec.Checker, v *manifests.Value, d protoreflect.MessageDescriptor) {
	if v.Kind != manifests.Map || d.FullName().Parent() == "google.protobuf" {
		return // evaluated later, or with a JSON form of its own
	}
	for _, f := range v.Fields {
		field, parts := fieldOf(d, f.Name), []*manifests.Value{f.Value}
		if field == nil {
			if !strings.HasPrefix(f.Name, "[") {
				c.Errorf(f.Pos, "%s has no field %s; it has %s", d.FullName(), f.Name, shortened(fieldsOf(d)))
			}
			continue
		}
		of := field.Message()
		switch {
		case field.IsMap():
			of, parts = field.MapValue().Message(), nil
			for _, entry := range f.Value.Fields {
				parts = append(parts, entry.Value)
			}
		case field.IsList():
			parts = f.Value.Items
		}
		for _, part := range parts {
			if of != nil {
				checkMessage(c, part, of)
			}
		}
	}
}

func fieldOf(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByJSONName(name); f != nil {
		return f
	}
	return d.Fields().ByTextName(name)
}

func fieldsOf(d protoreflect.MessageDescriptor) []string {
	out := make([]string, d.Fields().Len())
	for i := range out {
		out[i] = d.Fields().Get(i).JSONName()
	}
	return out
}
