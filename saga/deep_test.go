package saga

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"edda"
	"edda/internal/jsonvalue"
)

// nestedBy is an event whose innermost value is inside that many lists and objects.
func nestedBy(levels int) string {
	return `{"id":"K","l":[1],"x":` + strings.Repeat("[", levels-1) + "1" + strings.Repeat("]", levels-1) + "}"
}

// wantReadable fails the test if any JSON inside v cannot be decoded.
func wantReadable(t *testing.T, what string, v reflect.Value) {
	t.Helper()
	if raw, ok := v.Interface().(json.RawMessage); ok {
		if _, err := jsonvalue.Decode(raw); err != nil {
			t.Errorf("%s: %.40s… of %d bytes cannot be read again: %v", what, raw, len(raw), err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			wantReadable(t, what, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			wantReadable(t, what, v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			wantReadable(t, what, v.MapIndex(key))
		}
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			if f.IsExported() {
				wantReadable(t, what+"."+f.Name, v.FieldByIndex(f.Index))
			}
		}
	}
}

// TestAStateThatIsNestedTooDeepIsPoison, because its saga could not read it again: a value of the
// event may be deeper in the state, whether it is copied as JSON or decoded.
func TestAStateThatIsNestedTooDeepIsPoison(t *testing.T) {
	for do, further := range map[string]int{
		"set: {a: =event}":                            1,
		"set: {a: =event.x}":                          0,
		"set: {a: =event, b: =keys(event)}":           1,
		"set: {a: {b: =event}}":                       2,
		"set: {a.b: =event}":                          2,
		"set: {a: =event}, unset: [b]":                1,
		"set: {a: [=event]}":                          2,
		"do: [{set: {a: =event}}]":                    1,
		"do: [{set: {a: 1}}, {set: {b: =event}}]":     1,
		"let: {e: event}, set: {a: =e}":               1,
		"do: [{effect: pay, with: =event}]":           0,
		"do: [{effect: pay, with: {a: =event}}]":      1,
		"do: [{effect: pay, with: {a: {b: =event}}}]": 2,
		"do: [{effect: pay, with: [=event]}]":         1,
		"do: [{effect: pay, with: =event.x, undo: {effect: back, with: {a: =event}}}]":  0,
		"do: [{command: A.B, to: =key, with: {a: =event}}]":                             1,
		"do: [{start: two, key: key, with: {a: =event}}]":                               1,
		"do: [{event: Done, with: {a: =event}}]":                                        1,
		"do: [{message: {a: =event}}]":                                                  1,
		"do: [{ask: boss, to: =key, with: {a: =event}}]":                                1,
		"do: [{seq: [{effect: pay, with: =event.id}, {effect: b, with: {a: =event}}]}]": 0,
		"do: [{each: event.l, do: [{effect: pay, with: {a: =event}}]}]":                 1,
		"do: [{done: {a: =event}}]":                                                     1,
	} {
		for levels := jsonvalue.MaxDepth - 3; levels <= jsonvalue.MaxDepth; levels++ {
			what := fmt.Sprintf("%s of %d levels", do, levels)
			l := limited(t, "saga: one\nkey: event.id\non:\n  Placed: {start: true, "+do+"}\n", Options{})
			trs := l.event("Placed", nestedBy(levels))
			want := edda.FateHandled
			if levels+further > jsonvalue.MaxDepth {
				want = edda.FateDead
			}
			if len(trs) != 1 || trs[0].Fate != want {
				t.Fatalf("%s: %s, want it %s", what, said(trs), want)
			}
			wantReadable(t, what, reflect.ValueOf(trs))
			if want == edda.FateDead && !strings.Contains(trs[0].Dead.Error, "nested deeper than 128") {
				t.Errorf("%s: says %q", what, trs[0].Dead.Error)
			}
		}
	}
}

// TestAnAnswerThatIsNestedTooDeepIsPoison, because it is one level deeper under data.
func TestAnAnswerThatIsNestedTooDeepIsPoison(t *testing.T) {
	for levels, want := range map[int]edda.Fate{jsonvalue.MaxDepth - 1: edda.FateHandled, jsonvalue.MaxDepth: edda.FateDead} {
		l := limited(t, "saga: one\nkey: event.id\non:\n  Placed: {start: true, do: [{ask: boss, to: =key}]}\n  boss.yes: {set: {a: =step.boss.status}}\n", Options{})
		l.event("Placed", `{"id":"K"}`)
		trs := l.give(edda.Event{Kind: edda.KindAnswer, Step: "boss", Type: "yes", Payload: json.RawMessage(strings.Repeat("[", levels) + "1" + strings.Repeat("]", levels))})
		if len(trs) != 1 || trs[0].Fate != want {
			t.Errorf("%d levels: %s, want it %s", levels, said(trs), want)
		}
		wantReadable(t, fmt.Sprint(levels), reflect.ValueOf(trs))
	}
}

// TestAnUpcastThatNestsTooDeepIsPoison: an A & B stores the upcast payload.
func TestAnUpcastThatNestsTooDeepIsPoison(t *testing.T) {
	for levels, want := range map[int]edda.Fate{jsonvalue.MaxDepth - 1: edda.FateHandled, jsonvalue.MaxDepth: edda.FateDead} {
		l := limited(t, "saga: one\nkey: event.id\nevents: {B: {upcast: {1: {set: {a: =event}}}}}\non:\n  Placed: {start: true}\n  A & B: {set: {n: 1}}\n", Options{})
		l.event("Placed", `{"id":"K"}`)
		trs := l.event("B", nestedBy(levels))
		if len(trs) != 1 || trs[0].Fate != want {
			t.Errorf("%d levels: %s, want it %s", levels, said(trs), want)
		}
		wantReadable(t, fmt.Sprint(levels), reflect.ValueOf(trs))
	}
}

// TestPoisonShowsInputsOfTheGreatestDepth: its inputs are for people.
func TestPoisonShowsInputsOfTheGreatestDepth(t *testing.T) {
	l := limited(t, "saga: one\nkey: event.id\non:\n  Placed: {start: true, set: {a: =event.x * 2}}\n", Options{})
	trs := l.event("Placed", nestedBy(jsonvalue.MaxDepth))
	if len(trs) != 1 || trs[0].Dead == nil || !strings.HasPrefix(trs[0].Dead.Inputs, `{"event":{"id":"K"`) {
		t.Errorf("%+v", trs)
	}
}
