package grpceffect

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"edda/effects"
	"edda/effects/dial"
	"edda/manifests"
)

// Kind is what effects.Compile needs to know of grpc.
func Kind() effects.Kind {
	return effects.Kind{
		Check:  check,
		Escape: map[string]func(before, value string) string{"target": escapeTarget, "method": escapeMethod},
		OK:     "status == 0",
	}
}

// escapeTarget keeps a value to one part of a host's name or a port; what a
// target begins with stays as it is. What a host cannot hold makes the target
// none, so that nothing is called.
func escapeTarget(before, value string) string {
	if before == "" {
		return value
	}
	return escape(value, func(r rune) bool { return r == '-' || r == '.' || isWord(r) })
}

// escapeMethod keeps a value to one name.
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
		return '%' // neither a target nor a method can hold it
	}, value)
}

func isWord(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

func fieldNames() []string {
	return []string{"target", "method", "message", "metadata", "proto", "descriptor_set", "import_paths", "tls", "plaintext"}
}

// check tells what is wrong with a grpc: map before anything runs.
func check(m *manifests.Effect) manifests.Problems {
	c := checker{m: m}
	for _, f := range m.Config.Fields {
		c.field(f)
	}
	for name, why := range map[string]string{"target": "the host:port to call", "method": "which method to call: package.Service/Method"} {
		if m.Config.Field(name) == nil {
			c.errorf(m.Config.Pos, "grpc needs %s: %s", name, why)
		}
	}
	c.exclusive("proto", "descriptor_set", "one describes the method")
	c.exclusive("tls", "plaintext", "plaintext is without TLS")
	if paths := m.Config.Field("import_paths"); paths != nil && m.Config.Field("proto") == nil {
		c.errorf(paths.Pos, "import_paths is where the imports of proto: are, and there is no proto")
	}
	if !c.problems.Failed() {
		c.described()
	}
	c.problems.Sort()
	return c.problems
}

type checker struct {
	m        *manifests.Effect
	problems manifests.Problems
}

func (c *checker) errorf(pos manifests.Pos, format string, args ...any) {
	c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) exclusive(one, other, why string) {
	a, b := c.m.Config.Field(one), c.m.Config.Field(other)
	if a != nil && b != nil && !isFalse(a) && !isFalse(b) {
		c.errorf(b.Pos, "%s and %s exclude each other: %s", one, other, why)
	}
}

func isFalse(v *manifests.Value) bool { return v.Kind == manifests.Literal && v.Scalar == false }

func (c *checker) field(f manifests.Field) {
	switch f.Name {
	case "target":
		c.known(f.Value, "1", isTarget, "target is host:port such as pay.example:443")
	case "method":
		c.known(f.Value, "x", methodForm.MatchString, "method is package.Service/Method such as shop.v1.Payments/Charge")
	case "message":
		c.isMap(f.Name, f.Value)
	case "metadata":
		c.isMap(f.Name, f.Value)
		c.metadata(f.Value)
	case "proto", "descriptor_set":
		c.path(f.Name, f.Value)
	case "import_paths":
		c.paths(f.Value)
	case "tls":
		c.problems = append(c.problems, dial.CheckTLS(c.m.File, f.Value)...)
	case "plaintext":
		if _, isBool := f.Value.Scalar.(bool); !isBool {
			c.errorf(f.Value.Pos, "plaintext is true or false")
		}
	default:
		c.errorf(f.Pos, "grpc knows no %s; it knows %s", f.Name, strings.Join(fieldNames(), ", "))
	}
}

// known holds a text that is written out against its form; a template is looked
// at as if every value in it were the one given.
func (c *checker) known(v *manifests.Value, value string, valid func(string) bool, want string) {
	text := ""
	switch v.Kind {
	case manifests.Expression:
		return
	case manifests.Literal:
		text, _ = v.Scalar.(string)
	case manifests.Template:
		if v.Parts[0].Expr != nil {
			return // it may be all but the end
		}
		for _, p := range v.Parts {
			if text += p.Text; p.Expr != nil {
				text += value
			}
		}
	}
	if !valid(text) {
		c.errorf(v.Pos, "%s", want)
	}
}

func (c *checker) isMap(name string, v *manifests.Value) {
	if v.Kind != manifests.Map && v.Kind != manifests.Expression {
		c.errorf(v.Pos, "%s is a map of names and values, or an expression that gives one", name)
	}
}

func (c *checker) metadata(v *manifests.Value) {
	for _, f := range v.Fields {
		name := strings.ToLower(f.Name)
		if !allowedName(name) {
			c.errorf(f.Pos, "metadata %q is a name that gRPC does not allow or keeps for itself", f.Name)
			continue
		}
		for _, item := range append([]*manifests.Value{f.Value}, f.Value.Items...) {
			c.metadataValue(name, item)
		}
	}
}

func (c *checker) metadataValue(name string, v *manifests.Value) {
	if v.Kind == manifests.Map {
		c.errorf(v.Pos, "metadata %q is a text or a list of texts", name)
	}
	if text, isText := v.Scalar.(string); isText {
		if _, err := wire(name, text); err != nil {
			c.errorf(v.Pos, "%s", err)
		}
	}
}

// path tells whether a value is the name of a file that is written out.
func (c *checker) path(name string, v *manifests.Value) {
	if text, _ := v.Scalar.(string); text == "" {
		c.errorf(v.Pos, "%s is the path of a file, and not evaluated", name)
	}
}

func (c *checker) paths(v *manifests.Value) {
	if v.Kind != manifests.List {
		c.errorf(v.Pos, "import_paths is a list of folders")
		return
	}
	for _, item := range v.Items {
		c.path("import_paths", item)
	}
}

// described holds the method and the message against the files that the
// manifest names.
func (c *checker) described() {
	config := map[string]any{}
	for _, name := range []string{"proto", "descriptor_set", "import_paths"} {
		if v := c.m.Config.Field(name); v != nil {
			config[name], _ = v.Const()
		}
	}
	from, err := files(effects.Call{Config: config, Folder: filepath.Dir(c.m.File.Name)})
	if from == nil || err != nil {
		return
	}
	at := c.m.Config.Field("proto")
	if at == nil {
		at = c.m.Config.Field("descriptor_set")
	}
	full := c.m.Config.Field("method")
	if full.Kind != manifests.Literal {
		return
	}
	m := c.describe(from, at, full)
	if message := c.m.Config.Field("message"); m != nil && message != nil {
		c.message(message, m.in)
	}
}

// describe reads the files; what is wrong in them is told where they are named,
// what is not in them where the method is.
func (c *checker) describe(from source, at, full *manifests.Value) *method {
	found, read, err := readAll(context.Background(), from)
	if err != nil {
		c.errorf(at.Pos, "%s", err)
		return nil
	}
	m, err := newMethod(full.Scalar.(string), found, read)
	if err != nil {
		c.errorf(full.Pos, "%s; described are %s", err, shortened(methodsOf(found)))
	}
	return m
}

// shown is how many names a message lists.
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

// message holds the fields that are written out against a message's.
func (c *checker) message(v *manifests.Value, d protoreflect.MessageDescriptor) {
	if v.Kind != manifests.Map || d.FullName().Parent() == "google.protobuf" {
		return // evaluated later, or written in a form of its own
	}
	for _, f := range v.Fields {
		field := fieldOf(d, f.Name)
		switch {
		case field != nil:
			c.messageField(f.Value, field)
		case !strings.HasPrefix(f.Name, "["):
			c.errorf(f.Pos, "%s has no field %s; it has %s", d.FullName(), f.Name, shortened(fieldsOf(d)))
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

func (c *checker) messageField(v *manifests.Value, f protoreflect.FieldDescriptor) {
	switch {
	case f.IsMap() && f.MapValue().Message() != nil:
		for _, entry := range v.Fields {
			c.message(entry.Value, f.MapValue().Message())
		}
	case f.IsMap():
	case f.IsList() && f.Message() != nil:
		for _, item := range v.Items {
			c.message(item, f.Message())
		}
	case f.Message() != nil && v.Kind == manifests.Map:
		c.message(v, f.Message())
	}
}
