package flow_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/flow"
	"edda/internal/testkit"
)

// Between two steps a flow is the JSON that the engine keeps, and an act is the
// JSON of an outbox row: a field that is not in it is forgotten.
func TestWhatAFlowKeepsIsWholeInItsJSON(t *testing.T) {
	for _, kept := range []any{&flow.State{}, &flow.Batch{}, &hero.Report{}} {
		want := reflect.ValueOf(kept).Elem()
		fill(t, want)
		text, err := json.Marshal(kept)
		testkit.Must(t, err)
		got := reflect.New(want.Type())
		testkit.Must(t, json.Unmarshal(text, got.Interface()))
		for i := range want.NumField() {
			if have, want := got.Elem().Field(i).Interface(), want.Field(i).Interface(); !reflect.DeepEqual(have, want) {
				t.Errorf("%T forgets of its %s:\nhave %+v\nwant %+v", kept, got.Elem().Type().Field(i).Name, have, want)
			}
		}
	}
}

// fill sets everything to something.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("error")
		if v.Type() == reflect.TypeFor[hero.NodeStatus]() {
			v.SetString("failed") // it reads its own words only
		}
	case reflect.Uint8, reflect.Uint32:
		v.SetUint(7)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"output": "x"}))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(epoch))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("how is %s filled?", v.Type())
	}
}
