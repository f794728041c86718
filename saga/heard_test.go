package saga

import (
	"testing"

	"edda"
)

func TestWhatIsRoutedIsHeard(t *testing.T) {
	const listener = `
saga: listener
version: 1
key: event.id
on:
  other.Done: {start: true, do: [{timer: ring, after: 1m}]}
  Short: {}
  Billed & depot.Shipped: {}
  timer.ring: {do: [{done: rung}]}
`
	set, err := setOf(t, listener).Keep(compiled(t, `
saga: kept
version: 1
key: event.id
on:
  other.Late: {start: true, do: [{done: late}]}
`, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		aggregate, event string
		want             bool
	}{
		{"other", "Done", true},
		{"another", "Done", false},
		{"other", "Undone", false},
		{"any", "Short", true},
		{"any", "Billed", true},
		{"depot", "Shipped", true},
		{"port", "Shipped", false},
		{"other", "Late", true},
		{"", "", false},
	}
	for _, test := range tests {
		if set.Hears(test.aggregate, test.event) != test.want {
			t.Errorf("%s.%s: heard is %v", test.aggregate, test.event, !test.want)
		}
		ev := edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "acme", AggregateType: test.aggregate, AggregateID: "1", Type: test.event, Payload: []byte(`{"id":"1"}`)}
		if targets := set.Route(ev); (len(targets) > 0) != test.want {
			t.Errorf("%s.%s goes to %+v", test.aggregate, test.event, targets)
		}
	}
}
