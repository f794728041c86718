package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// keysOf walks a value along the schema. Each key of the schema that it meets is counted, by the path of the
// definitions: action_timer.every.
type keysOf struct {
	defs map[string]any
	used map[string]int
}

// all counts the keys that the schema has.
func (k *keysOf) all(name string, schema any, visit func(path string)) {
	m, is := schema.(map[string]any)
	if !is {
		return
	}
	if properties, is := m["properties"].(map[string]any); is {
		for key, value := range properties {
			visit(name + "." + key)
			k.all(name+"."+key, value, visit)
		}
	}
	for _, word := range []string{"anyOf", "oneOf"} {
		for _, one := range list(m[word]) {
			k.all(name, one, visit)
		}
	}
	for _, word := range []string{"additionalProperties", "items"} {
		k.all(name, m[word], visit)
	}
	for _, value := range mapping(m["patternProperties"]) {
		k.all(name, value, visit)
	}
}

func list(v any) []any { l, _ := v.([]any); return l }

// mapping returns a map with its keys as texts: YAML reads 1: as a number.
func mapping(v any) map[string]any {
	if m, is := v.(map[any]any); is {
		out := map[string]any{}
		for key, value := range m {
			out[fmt.Sprint(key)] = value
		}
		return out
	}
	m, _ := v.(map[string]any)
	return m
}

// walk counts the keys of a value, and reports whether the schema has all of them.
func (k *keysOf) walk(name string, value, schema any) bool {
	s := mapping(schema)
	if ref, is := s["$ref"].(string); is {
		name = strings.TrimPrefix(ref, "#/$defs/")
		return k.walk(name, value, k.defs[name])
	}
	for _, word := range []string{"anyOf", "oneOf"} {
		for _, one := range list(s[word]) {
			if mapping(one)["required"] != nil && mapping(one)["properties"] == nil {
				continue // only demands keys
			}
			trial := &keysOf{k.defs, map[string]int{}}
			if trial.walk(name, value, one) {
				for path := range trial.used {
					k.used[path]++
				}
				break
			}
		}
	}
	if m, is := value.(map[any]any); is {
		value = mapping(m)
	}
	switch v := value.(type) {
	case map[string]any:
		properties, fits := mapping(s["properties"]), true
		for key, member := range v {
			one, has := properties[key]
			if has {
				k.used[name+"."+key]++
			} else if one = s["additionalProperties"]; one == false && s["patternProperties"] == nil {
				fits = false
			}
			for _, pattern := range mapping(s["patternProperties"]) {
				k.walk(name, member, pattern)
			}
			fits = k.walk(name+"."+key, member, one) && fits
		}
		for _, key := range list(s["required"]) {
			_, has := v[key.(string)]
			fits = fits && has
		}
		return fits && (s["type"] == nil || s["type"] == "object" || slices.Contains(list(s["type"]), any("object")))
	case []any:
		for _, item := range v {
			k.walk(name, item, s["items"])
		}
		return s["type"] == nil || s["type"] == "array" || slices.Contains(list(s["type"]), any("array"))
	}
	return s["type"] == nil || s["type"] != "object" && s["type"] != "array"
}

// TestTheManualShowsEveryKey: the manifests of docs/LANGUAGE.md have each key of the schema, and triggers of each form.
// A test in cli lints them and runs their tests.
func TestTheManualShowsEveryKey(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/LANGUAGE.md")
	if err != nil {
		t.Fatal(err)
	}
	k, triggers := &keysOf{mapping(schema["$defs"]), map[string]int{}}, ""
	ofAnyAction := regexp.MustCompile(`^action_\w+\.(if|id|priority)$`)
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		d := yaml.NewDecoder(strings.NewReader(m[1]))
		for {
			var document map[string]any
			if d.Decode(&document) != nil {
				break
			}
			name := "saga"
			if document["effect"] != nil {
				name = "effect"
			}
			k.walk(name, document, k.defs[name])
			for trigger := range mapping(document["on"]) {
				triggers += "| " + trigger + " |\n"
			}
		}
	}
	for _, form := range []string{
		`[A-Z]\w+ &`, `\.\w+ \|.* \| `, `[A-Z]\w+\.[A-Z]\w+ `, `com\.\w+\.\w+\.\w+ `, `[a-z]\w+\.[A-Z]\w+ `, `\.ok `, `\.failed `, `\.timeout `, `\.undone `, `\.all `,
		`timer\.`, `schedule\.`, `signal\.`, `saga\.failed `, `saga\.deadline `, `\w+\.approve `,
	} {
		if !regexp.MustCompile(form).MatchString(triggers) {
			t.Errorf("docs/LANGUAGE.md shows no trigger %s in\n%s", form, triggers)
		}
	}
	var missing []string
	k.used["check.smtp"], k.used["check.job"] = 1, 1 // the parser knows them to say that they are no check
	k.used["grpc.descriptor_set"] = 1                // a binary file; the example names it in a comment
	for path := range maps.Clone(k.used) {
		k.used[ofAnyAction.ReplaceAllString(path, "action.$1")]++
	}
	for name, definition := range k.defs {
		k.all(name, definition, func(path string) {
			path = ofAnyAction.ReplaceAllString(path, "action.$1")
			if k.used[path] == 0 && !slices.Contains(missing, path) {
				missing = append(missing, path)
			}
		})
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		t.Errorf("docs/LANGUAGE.md shows no %s", strings.Join(missing, ", "))
	}
}
