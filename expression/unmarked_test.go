package expression

import (
	"fmt"
	"testing"
)

// unmarkedScope are names of a saga's handler with the let total and the item line.
var unmarkedScope = []string{"config", "event", "key", "meta", "now", "saga", "seen", "state", "step", "total", "line"}

func TestFindUnmarked(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"event.id", "=event.id"},
		{" event.id ", "=event.id"},
		{"event?.id", "=event?.id"},
		{"event.a.b", "=event.a.b"},
		{"event.items[0]", "=event.items[0]"},
		{"event.items[0].sku", "=event.items[0].sku"},
		{`event["order id"]`, `=event["order id"]`},
		{"event.items[0:2]", "=event.items[0:2]"},
		{"state.n + 1", "=state.n + 1"},
		{"state.n+1", "=state.n+1"},
		{"state.paid - event.amount", "=state.paid - event.amount"},
		{"total * 2", "=total * 2"},
		{`event.first + " " + event.last`, `=event.first + " " + event.last`},
		{`event.path + "/a/b"`, `=event.path + "/a/b"`},
		{"step.ship.result", "=step.ship.result"},
		{"state.n > 3", "=state.n > 3"},
		{`event.kind == "a"`, `=event.kind == "a"`},
		{"event.a ?? 0", "=event.a ?? 0"},
		{`event.a ? "x" : "y"`, `=event.a ? "x" : "y"`},
		{"event.paid and state.shipped", "=event.paid and state.shipped"},
		{`event.kind in ["a", "b"]`, `=event.kind in ["a", "b"]`},
		{"len(event.items)", "=len(event.items)"},
		{`addTime(now, "36h")`, `=addTime(now, "36h")`},
		{"filter(event.items, .qty > 1)", "=filter(event.items, .qty > 1)"},
		{"event", "=event"},
		{"key", "=key"},
		{"total", "=total"},
		{"https://x/{event.id}/labels", "${event.id}"},
		{"{event.id}", "${event.id}"},
		{"Dear {{event.name}}", "${event.name}"},
		{"Dear {{ event.name }}, hello", "${event.name}"},
		{"order $event.id", "${event.id}"},
		{"order $(event.id)", "${event.id}"},
		{"$( event.items[0].b )/$(state.n)", "${event.items[0].b} ${state.n}"},
		{" =event.id", "=event.id"},
		{"\n  = state.n + 1\n", "=state.n + 1"},
		{" =key", "=key"},
		{` =event.a ? "x" : "y"`, `=event.a ? "x" : "y"`},
		{"$state.n of $event.total", "${state.n} ${event.total}"},
		{"{event.a}{event.items[0].b}", "${event.a} ${event.items[0].b}"},
	} {
		if got := mends(tt.text, false); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestFindUnmarkedLeavesTextsAlone(t *testing.T) {
	for _, text := range []string{
		"", " ", "paid", "Event", "events", "key event", "the key", "see event.log", "event.", ".event", "event.id.", "event. State", "event.id. Then", "event.id, please",
		"step-1", "step-by-step", "event/state", "event/2", "state.a/b", "key-value", "event-2026-01-01", "event.a/b/c", "event - 1", "state / event",
		"event and state", "key in state", "state or event", "not event.id", "event, state", "event: state", "event; state", "event!", "event?",
		"event.json", "state.yaml", "event.report.pdf", "step.tar.gz", "event.example.com", "state.txt",
		"https://event.example.com/a", "http://x/event.id", "//event.id", "event@shop.example", "ann@event.example", "mailto:event.id",
		"a.b", "order.id", "Order.Created", "event.id is missing", "event.id // note", "event.id /* note */",
		"1 + 2", "len", "len(x)", "len()", `len("abc")`, "now()", "event()", "event.find()", "date and time", "state ..", "1..3", "event..state",
		"(event)", "[event]", `{"a": event.id}`, `"event.id"`, `'event.id'`, "=event.id", "-event.id",
		"{event}", "{{event}}", "$event", "{id}", "{order.id}", "{ event.id }", "{event.id", "event.id}", "{event.id }", "{{event.id}", "{{{event.id}}}",
		"${event.id}", "${{event.id}}", "$$(event.id)", "$(event)", "$(order.id)", "$(event.id", "$(ls state.d)", " =order.id", " =1 + 2", " ==event.id", " = ", " =the key", " =event.id.", "$${event.id}", "$$event.id", "$order.id", "$5.00", "US$1.50", "{a: event.id}", "{event.id: 1}", "{event.id, 1}",
		`function f() { return event.id }`, "^event.*$", "event.*", "event.id=1", "event.id := 1", "{event.json}",
	} {
		if got := mends(text, false); got != "" {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestFindUnmarkedInATemplate reads a part of a template, which is never a whole expression.
func TestFindUnmarkedInATemplate(t *testing.T) {
	for text, want := range map[string]string{"event.id": "", "key": "", " state.n + 1 ": "", "/{event.id}/": "${event.id}", "/$event.id/": "${event.id}"} {
		if got := mends(text, true); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestFindUnmarkedKnowsOnlyTheScope(t *testing.T) {
	for _, text := range []string{"event.id", "len(event.items)", "{event.id}", "$event.id", "event", `uuid("a")`} {
		if got := FindUnmarked(text, false, []string{"payload"}); len(got) > 0 {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestUnmarkedSaysTheMend pastes the advice for the text into a manifest's place: it is that text.
func TestUnmarkedSaysTheMend(t *testing.T) {
	for text, want := range map[string]string{
		"event.id":      `this is the text "event.id"; write =event.id for its value, or ='event.id' for the text`,
		"100 * state.n": "",
		"state.n % 5":   `this is the text "state.n % 5"; write =state.n % 5 for its value, or ='state.n % 5' for the text`,
		"x{event.id}":   `this text holds "{event.id}" as it is; write ${event.id} for its value, or ${'{event.id}'} for the text`,
		" =event.id":    `this is the text " =event.id"; write =event.id for its value, or =' =event.id' for the text`,
		"x$(event.id)":  `this text holds "$(event.id)" as it is; write ${event.id} for its value, or ${'$(event.id)'} for the text`,
		"event['id']":   `this is the text "event['id']"; write =event['id'] for its value`,
	} {
		got := ""
		for _, u := range FindUnmarked(text, false, unmarkedScope) {
			got += u.String()
		}
		if got != want {
			t.Errorf("%q: %s\nwant %s", text, got, want)
		}
	}
}

func mends(text string, part bool) string {
	out := ""
	for i, u := range FindUnmarked(text, part, unmarkedScope) {
		if i > 0 {
			out += " "
		}
		out += fmt.Sprint(u.Mend)
	}
	return out
}
