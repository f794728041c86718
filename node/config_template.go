package node

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Template returns a configuration file in which the manifests are set, and every other key stands
// as a comment with its default and what it means. Without the "# " that begins these lines, the
// file says the same.
func Template(manifests ...string) ([]byte, error) {
	set, err := inFlow(manifests)
	if err != nil {
		return nil, err
	}
	lines, err := templateOf(reflect.ValueOf(Defaults()), "")
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	out.WriteString("# The configuration of edda run: edda run --config edda.yaml. edda dev takes only its manifests.\n" +
		"# A comment shows the default. Flags and EDDA_* variables, such as EDDA_NATS_URL, override this file.\n" +
		"# Relative paths begin at the folder of this file.\n")
	for _, l := range lines {
		if l.text == "manifests: []" {
			out.WriteString(l.commented("manifests: "+set, docColumn+len("# ")) + "\n")
			continue
		}
		out.WriteString("# " + l.commented(l.text, docColumn) + "\n")
	}
	return []byte(out.String()), nil
}

// templateLine is one key, or the head of a group.
type templateLine struct{ text, doc string }

// docColumn is where the meanings of the keys begin.
const docColumn = 34

// commented is a text with the meaning of the key in a column.
func (l templateLine) commented(text string, column int) string {
	if l.doc == "" {
		return text
	}
	return fmt.Sprintf("%-*s # %s", column, text, l.doc)
}

func templateOf(v reflect.Value, indent string) (out []templateLine, err error) {
	for f, field := range v.Fields() {
		name := indent + f.Tag.Get("koanf") + ":"
		if f.Type.Kind() == reflect.Struct {
			inside, err := templateOf(field, indent+"  ")
			if err != nil {
				return nil, err
			}
			out = append(append(out, templateLine{text: name}), inside...)
			continue
		}
		value, err := inFlow(field.Interface())
		if err != nil {
			return nil, err
		}
		out = append(out, templateLine{name + " " + value, f.Tag.Get("doc")})
	}
	return out, nil
}

// inFlow is a value on one line, as a file has it.
func inFlow(v any) (string, error) {
	switch x := v.(type) {
	case time.Duration:
		return x.String(), nil
	case string:
		if x == "" {
			return `""`, nil
		}
	}
	if r := reflect.ValueOf(v); (r.Kind() == reflect.Map || r.Kind() == reflect.Slice) && r.Len() == 0 {
		return map[reflect.Kind]string{reflect.Map: "{}", reflect.Slice: "[]"}[r.Kind()], nil
	}
	var n yaml.Node
	if err := n.Encode(v); err != nil {
		return "", fmt.Errorf("write a setting: %w", err)
	}
	n.Style = yaml.FlowStyle
	text, err := yaml.Marshal(&n)
	if err != nil {
		return "", fmt.Errorf("write a setting: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
