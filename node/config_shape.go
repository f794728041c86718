package node

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// misshapen returns an error for each value of a configuration that is not of its key's type. The
// decoder reports such values in the words of Go, or takes a list of maps for one map.
func misshapen(raw map[string]any) error {
	return errors.Join(misshapenMembers(raw, reflect.TypeFor[Config](), "")...)
}

func misshapenMembers(raw map[string]any, t reflect.Type, prefix string) (out []error) {
	for f := range t.Fields() {
		if v := raw[f.Tag.Get("koanf")]; v != nil {
			out = append(out, misshapenValue(v, f.Type, prefix+f.Tag.Get("koanf"))...)
		}
	}
	return out
}

func misshapenValue(v any, t reflect.Type, key string) (out []error) {
	entries, isMap := v.(map[string]any)
	items, isList := v.([]any)
	switch t.Kind() {
	case reflect.Pointer:
		return misshapenValue(v, t.Elem(), key)
	case reflect.Struct:
		if !isMap {
			return []error{valueOfAGroup(key, settingsOf(t, key))}
		}
		return misshapenMembers(entries, t, key+".")
	case reflect.Map:
		if !isMap {
			return []error{fmt.Errorf("%s is a map of names, and not %s: write %s: %s", key, kindOf(v), key[strings.LastIndexByte(key, '.')+1:], exampleOf(t))}
		}
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			if entry := entries[name]; entry != nil {
				out = append(out, misshapenValue(entry, t.Elem(), key+"."+name)...)
			}
		}
		return out
	case reflect.Slice:
		switch {
		case isMap:
			return []error{fmt.Errorf("%s is a list, and not a map: write %s", key, exampleOf(t))}
		case isList:
			for i, item := range items {
				out = append(out, misshapenValue(item, t.Elem(), fmt.Sprintf("%s[%d]", key, i))...)
			}
		}
		return out // a text is a list with commas
	}
	if want := wantedScalar(v, t); want != "" {
		return []error{fmt.Errorf("%s: want %s, and not %s", key, want, kindOf(v))}
	}
	return nil
}

// wantedScalar says what a setting of one value takes, if the value is something else.
func wantedScalar(v any, t reflect.Type) string {
	text, isText := v.(string)
	_, isMap := v.(map[string]any)
	_, isList := v.([]any)
	wrong := func(err error) bool { return isMap || isList || isText && text != "" && err != nil }
	switch {
	case t == reflect.TypeFor[time.Duration]():
		if _, err := time.ParseDuration(text); wrong(err) || isText && text == "" {
			return "a duration such as 90s, 30m or 168h"
		}
	case t.Kind() == reflect.Bool:
		if _, err := strconv.ParseBool(text); wrong(err) {
			return "true or false"
		}
	case slices.Contains([]reflect.Kind{reflect.Int, reflect.Int64, reflect.Uint32}, t.Kind()):
		if _, err := strconv.ParseInt(text, 0, 64); wrong(err) {
			return "a whole number"
		}
	case wrong(nil):
		return "one value"
	}
	return ""
}

func valueOfAGroup(key string, settings []string) error {
	return fmt.Errorf("%s is a group of settings and has no value of its own; it holds %s", key, strings.Join(settings, ", "))
}

// settingsOf lists the settings in a group.
func settingsOf(t reflect.Type, group string) (names []string) {
	for _, key := range configKeysOf(t, group+".") {
		names = append(names, key.name)
	}
	return names
}

// kindOf describes a value of a file, without its content if that is a list or a map.
func kindOf(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("%.40q", v)
	}
	return fmt.Sprint(v)
}

// exampleOf shows the form of a value in YAML.
func exampleOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Map:
		return "{NAME: " + exampleOf(t.Elem()) + "}"
	case reflect.Struct:
		return "{" + t.Field(0).Tag.Get("koanf") + ": …}"
	case reflect.Slice:
		return "[…]"
	}
	return "…"
}
